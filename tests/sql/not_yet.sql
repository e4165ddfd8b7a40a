-- only: apus. What is not supported answers with an error, never with a wrong result.
CREATE TABLE a (id INT PRIMARY KEY, v INT);
CREATE TABLE b (id INT PRIMARY KEY, v INT);
SELECT a.id FROM a JOIN b ON a.id = b.id FOR UPDATE SKIP LOCKED;
UPDATE IGNORE a JOIN b ON a.id = b.id SET a.v = 1;
UPDATE a JOIN b ON a.id = b.id SET a.v = b.v, a.id = a.v;
SELECT 1;
SELECT (BINARY 'a') = 'A', 'a' = BINARY 'A';
