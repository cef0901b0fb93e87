INSERT INTO validated_trades (number, valid, validator) VALUES (:number, :valid, :validator)
