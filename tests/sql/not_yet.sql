-- only: apus. What is not supported answers with an error, never with a wrong result.
CREATE TABLE a (id INT PRIMARY KEY, v INT);
CREATE TABLE b (id INT PRIMARY KEY, v INT);
SELECT a.id FROM a JOIN b ON a.id = b.id;
SELECT a.id FROM a, b WHERE a.id = b.id;
SELECT id FROM a WHERE id IN (SELECT id FROM b);
SELECT id FROM a UNION SELECT id FROM b;
SELECT (SELECT 1);
WITH c AS (SELECT 1) SELECT * FROM c;
SELECT 1;
SELECT (BINARY 'a') = 'A', 'a' = BINARY 'A';
