-- The shop's schema, as a file that a console reads.
CREATE TABLE books (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  title VARCHAR(50) NOT NULL UNIQUE,
  price DECIMAL(10,2) DEFAULT 1.5,
  stock INT NOT NULL DEFAULT 0,
  kind ENUM('paper','sound') DEFAULT 'paper',
  CONSTRAINT stock_there CHECK (stock >= 0)
);
CREATE TABLE events (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, /* a comment; with a semicolon */
  number INT NOT NULL,
  book_id BIGINT UNSIGNED NOT NULL,
  FOREIGN KEY (book_id) REFERENCES books (id)
);
ALTER TABLE books MODIFY title VARCHAR(200) NOT NULL, ADD note VARCHAR(20) AFTER title;
CREATE INDEX price ON books (price, title);
