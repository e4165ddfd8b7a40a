-- only: apus
-- UPDATE IGNORE leaves a row with a duplicate key alone; MySQL warns of each, MariaDB does not.
CREATE TABLE q (id INT PRIMARY KEY, u INT, UNIQUE KEY (u));
INSERT INTO q VALUES (1, 1), (2, 2), (3, 3);
UPDATE IGNORE q SET u = 7;
SHOW WARNINGS;
SELECT * FROM q ORDER BY id;
UPDATE IGNORE q SET id = 1 WHERE id = 2;
UPDATE IGNORE q SET id = 9 WHERE id = 2;
BEGIN;
UPDATE IGNORE q SET id = 9, u = 20 WHERE id = 3;
UPDATE IGNORE q SET u = 30 WHERE id = 3;
COMMIT;
SELECT * FROM q ORDER BY id;
