SELECT validator, count(*) FROM validated_trades GROUP BY validator ORDER BY count(*) DESC
