-- 300 books, each a row of a recursive query.
INSERT INTO books (title, price)
WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 299)
SELECT CONCAT('Book ', n), n % 20 FROM n;
