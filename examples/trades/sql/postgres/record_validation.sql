INSERT INTO validated_trades (number, valid, validator) VALUES (%(number)s, %(valid)s, %(validator)s)
