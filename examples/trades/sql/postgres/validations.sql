-- The trades that were validated, and by whom.

-- name: record_validation
INSERT INTO validated_trades (number, valid, validator) VALUES (:number, :valid, :validator)

-- name: validators
SELECT validator, count(*) FROM validated_trades GROUP BY validator ORDER BY count(*) DESC
