-- only: apus. SHOW and variables, in MySQL 8's forms (MariaDB prints other widths).
CREATE TABLE sh (id INT NOT NULL AUTO_INCREMENT, k INT NOT NULL DEFAULT '0', c CHAR(120) NOT NULL DEFAULT '', n DECIMAL(10,2), ts DATETIME, PRIMARY KEY (id), UNIQUE KEY uk (k), KEY kc (c, n));
SHOW COLUMNS FROM sh;
DESCRIBE sh;
SHOW WARNINGS;
SHOW VARIABLES LIKE 'autocommit';
SELECT @@autocommit, @@transaction_isolation;
SET NAMES utf8mb4;
SHOW TABLES LIKE 'sh';
