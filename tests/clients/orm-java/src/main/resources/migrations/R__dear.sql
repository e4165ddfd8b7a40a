CREATE OR REPLACE VIEW dear AS SELECT id, title FROM books WHERE price > 17;
