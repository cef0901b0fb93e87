-- Every page is read and every index compared with its table; "ok", or what is wrong, a row each.
PRAGMA integrity_check(10);
