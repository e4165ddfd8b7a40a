DROP TABLE events; DROP TABLE book_tags; DROP TABLE tags;
ALTER TABLE books DROP CHECK stock_there;
ALTER TABLE books DROP FOREIGN KEY of_author;
ALTER TABLE books DROP KEY title_of_author;
ALTER TABLE books DROP kind, DROP ok, DROP sold, DROP cover, DROP text, DROP stock, MODIFY title VARCHAR(50) NOT NULL;
