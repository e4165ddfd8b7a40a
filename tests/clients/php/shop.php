<?php
// PHP by itself: `shop.php mysqli|emulated|prepared PORT DATABASE STEP`. `emulated` and `prepared` are PDO's two ways.
declare(strict_types=1);

[, $way, $port, $database, $step] = $argv;

function same(mixed $found, mixed $wanted, string $what): void
{
    if ($found !== $wanted) {
        fwrite(STDERR, "$what: " . var_export($found, true) . ', not ' . var_export($wanted, true) . "\n");
        exit(1);
    }
}

/** MySQL's number and SQLSTATE of the error. */
function refused(callable $action, string $what): array
{
    try {
        $action();
    } catch (mysqli_sql_exception $error) {
        return [$error->getCode(), $error->getSqlState()];
    } catch (PDOException $error) {
        return [$error->errorInfo[1], $error->errorInfo[0]];
    }
    throw new Exception("$what was not refused");
}

/** The same questions to mysqli and to PDO. */
interface Db
{
    public function rows(string $sql, array $values = []): array;
    public function change(string $sql, array $values = []): int;
    public function id(): int;
    public function begin(): void;
    public function commit(): void;
    public function rollback(): void;
}

final class ByMysqli implements Db
{
    public mysqli $link;

    public function __construct(int $port, string $database)
    {
        mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
        $this->link = mysqli_init();
        $this->link->options(MYSQLI_OPT_LOCAL_INFILE, 1);
        $this->link->options(MYSQLI_OPT_INT_AND_FLOAT_NATIVE, 1);
        $this->link->real_connect('127.0.0.1', 'root', '', $database, $port);
        $this->link->set_charset('utf8mb4');
    }

    public function rows(string $sql, array $values = []): array
    {
        $result = $values ? $this->link->execute_query($sql, $values) : $this->link->query($sql);
        return $result->fetch_all(MYSQLI_ASSOC);
    }

    public function change(string $sql, array $values = []): int
    {
        $values ? $this->link->execute_query($sql, $values) : $this->link->query($sql);
        return (int) $this->link->affected_rows;
    }

    public function id(): int { return (int) $this->link->insert_id; }
    public function begin(): void { $this->link->begin_transaction(); }
    public function commit(): void { $this->link->commit(); }
    public function rollback(): void { $this->link->rollback(); }
}

final class ByPdo implements Db
{
    public PDO $pdo;

    public function __construct(int $port, string $database, bool $emulated)
    {
        $options = [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_EMULATE_PREPARES => $emulated, PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC, PDO::MYSQL_ATTR_LOCAL_INFILE => true];
        $this->pdo = new PDO("mysql:host=127.0.0.1;port=$port;dbname=$database;charset=utf8mb4", 'root', '', $options);
    }

    private function run(string $sql, array $values): PDOStatement
    {
        $statement = $this->pdo->prepare($sql);
        $statement->execute($values);
        return $statement;
    }

    public function rows(string $sql, array $values = []): array { return $this->run($sql, $values)->fetchAll(); }
    public function change(string $sql, array $values = []): int { return $this->run($sql, $values)->rowCount(); }
    public function id(): int { return (int) $this->pdo->lastInsertId(); }
    public function begin(): void { $this->pdo->beginTransaction(); }
    public function commit(): void { $this->pdo->commit(); }
    public function rollback(): void { $this->pdo->rollBack(); }
}

function migrate(Db $db): void
{
    foreach ([
        "CREATE TABLE books (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, title VARCHAR(50) NOT NULL UNIQUE, price DECIMAL(10,2) DEFAULT 1.5, stock INT NOT NULL DEFAULT 0, sold BIGINT UNSIGNED, weight DOUBLE,
            extra JSON, cover BLOB, added DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6), kind ENUM('paper','sound') DEFAULT 'paper', CONSTRAINT stock_there CHECK (stock >= 0))",
        'CREATE TABLE events (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, number INT NOT NULL, book_id BIGINT UNSIGNED NOT NULL, FOREIGN KEY (book_id) REFERENCES books (id))',
        'ALTER TABLE books MODIFY title VARCHAR(200) NOT NULL, ADD note VARCHAR(20) AFTER title',
        'CREATE INDEX price ON books (price, title)',
    ] as $sql) {
        $db->change($sql);
    }
}

function work(Db $db): void
{
    $values = ["Ærøskøbing ✈ it's \\ \"q\" \0", '12.50', 3, '18446744073709551615', 1e-300, '{"a": [1, {"b": "ü"}]}', "\0\xff'", '2024-02-29 23:59:58.123456', 'sound', null];
    same($db->change('INSERT INTO books (title, price, stock, sold, weight, extra, cover, added, kind, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)', $values), 1, 'rows inserted');
    $id = $db->id();
    [$row] = $db->rows('SELECT title, price, stock, sold, weight, extra, cover, added, kind, note FROM books WHERE id = ?', [$id]);
    same(array_values($row), $values, 'a row');
    for ($n = 0; $n < 300; $n++) {
        $db->change('INSERT INTO books (title, price) VALUES (?, ?)', ["Book $n", (string) ($n % 20)]);
    }
    $page = $db->rows("SELECT title, price FROM books WHERE price BETWEEN ? AND ? AND title LIKE ? ORDER BY price DESC, id LIMIT 10 OFFSET 20", [3, 7, 'Book %']);
    same([count($page), $page[0]], [10, ['title' => 'Book 106', 'price' => '6.00']], 'a page');
    same($db->rows('SELECT kind, COUNT(*) AS n, SUM(price) AS total FROM books GROUP BY kind WITH ROLLUP')[2], ['kind' => null, 'n' => 301, 'total' => '2862.50'], 'totals');
    same($db->rows("SELECT extra->>'$.a[1].b' AS b FROM books WHERE JSON_EXTRACT(extra, '$.a[0]') = 1"), [['b' => 'ü']], 'by JSON');
    same($db->change("INSERT INTO books (title, stock) VALUES (?, 1) ON DUPLICATE KEY UPDATE stock = stock + 1", ['Book 1']), 2, 'an upsert');
    same($db->change("REPLACE INTO books (title) VALUES (?)", ['Book 2']), 2, 'a replacement');
    same(refused(fn () => $db->change('INSERT INTO books (title) VALUES (?)', ['Book 1']), 'a second title'), [1062, '23000'], '1062');
    same(refused(fn () => $db->change('INSERT INTO events (number, book_id) VALUES (?, ?)', [1, 999999]), 'an event of nothing'), [1452, '23000'], '1452');
    same(refused(fn () => $db->change('UPDATE books SET stock = ?', [-1]), 'a negative stock'), [3819, 'HY000'], '3819');
    same(refused(fn () => $db->change('INSERT INTO books (title) VALUES (?)', [str_repeat('x', 300)]), 'a long title'), [1406, '22001'], '1406');
    same(refused(fn () => $db->rows('SELEKT 1'), 'nonsense'), [1064, '42000'], '1064');
    same(refused(fn () => $db->rows('SELECT * FROM nowhere WHERE a = ?', [1]), 'no table'), [1146, '42S02'], '1146');
    $db->begin();
    $db->change('UPDATE books SET note = ?', ['goes']);
    $db->change('SAVEPOINT s');
    $db->change('DELETE FROM books');
    $db->change('ROLLBACK TO SAVEPOINT s');
    same($db->rows('SELECT COUNT(*) AS n FROM books WHERE note = ?', ['goes']), [['n' => 301]], 'inside');
    $db->rollback();
    same($db->rows('SELECT COUNT(*) AS n FROM books WHERE note = ?', ['goes']), [['n' => 0]], 'after the rollback');
    $file = tempnam(sys_get_temp_dir(), 'apus-php');
    file_put_contents($file, "from a file\t1.5\nanother\t2\n");
    $db instanceof ByMysqli ? mysqli_only($db->link, $file) : pdo_only($db->pdo, $file);
    unlink($file);
    same($db->rows("SELECT COUNT(*) AS n FROM books WHERE title IN ('from a file', 'another')"), [['n' => 2]], 'rows of a file');
}

function mysqli_only(mysqli $link, string $file): void
{
    $link->query('SET GLOBAL local_infile = ON');
    $link->query("LOAD DATA LOCAL INFILE '$file' INTO TABLE books (title, price)");
    same([$link->affected_rows, $link->info], [2, 'Records: 2  Deleted: 0  Skipped: 0  Warnings: 0'], 'the information');
    $link->multi_query("SELECT 1 AS a; UPDATE books SET note = 'x' WHERE id = 0; SELECT 2 AS b; SELEKT");
    $seen = [];
    $code = refused(function () use ($link, &$seen) {
        do {
            $result = $link->store_result();
            $seen[] = $result ? $result->fetch_row()[0] : null;
        } while ($link->next_result());
    }, 'nonsense behind others');
    same([$seen, $code[0]], [[1, null, 2], 1064], 'several statements');
    $title = 'Book 3';
    $statement = $link->prepare('SELECT id, title, price FROM books WHERE title = ?');
    $statement->bind_param('s', $title);
    foreach (['Book 3', 'Book 4'] as $title) {
        $statement->execute();
        $statement->bind_result($id, $found, $price);
        same([$statement->fetch(), $found], [true, $title], 'a bound row');
        $statement->free_result();
    }
    $statement->close();
    $large = $link->prepare('UPDATE books SET cover = ? WHERE title = "Book 5"');
    $empty = null;
    $large->bind_param('b', $empty);
    foreach ([20_000, 30_000] as $length) {
        $large->send_long_data(0, str_repeat('x', $length));
    }
    $large->execute();
    same($link->query('SELECT LENGTH(cover) FROM books WHERE title = "Book 5"')->fetch_row()[0], 50_000, 'a blob in pieces');
    $rows = 0;
    foreach ($link->query('SELECT * FROM books', MYSQLI_USE_RESULT) as $row) {
        $rows++;
    }
    same([$rows, $link->real_escape_string("'\\\0"), $link->ping(), $link->stat() !== ''], [303, "\\'\\\\\\0", true, true], 'the rest');
    $link->query("INSERT IGNORE INTO books (title, stock) VALUES ('warned', 'x')");
    same([$link->warning_count, $link->get_warnings()->errno], [1, 1366], 'a warning');
    same($link->change_user('root', '', $GLOBALS['database']), true, 'the user');
}

function pdo_only(PDO $pdo, string $file): void
{
    $pdo->exec('SET GLOBAL local_infile = ON');
    same($pdo->exec("LOAD DATA LOCAL INFILE '$file' INTO TABLE books (title, price)"), 2, 'rows of a file');
    $statement = $pdo->prepare('SELECT title FROM books WHERE price = :price AND stock < :stock ORDER BY id LIMIT :n');
    foreach (['price' => 3, 'stock' => 1, 'n' => 4] as $name => $value) {
        $statement->bindValue($name, $value, PDO::PARAM_INT);
    }
    $statement->execute();
    same($statement->fetchAll(PDO::FETCH_COLUMN), ['Book 3', 'Book 23', 'Book 43', 'Book 63'], 'named parameters');
    same($pdo->query('SELECT title, price FROM books WHERE title IN ("Book 3", "Book 4")')->fetchAll(PDO::FETCH_KEY_PAIR), ['Book 3' => '3.00', 'Book 4' => '4.00'], 'pairs');
    $blob = $pdo->prepare('UPDATE books SET cover = ? WHERE title = "Book 5"');
    $blob->bindValue(1, fopen('data:,' . str_repeat('x', 50_000), 'r'), PDO::PARAM_LOB);
    $blob->execute();
    same($pdo->query('SELECT LENGTH(cover) FROM books WHERE title = "Book 5"')->fetchColumn(), 50_000, 'a stream');
    $column = $pdo->query('SELECT price FROM books LIMIT 1')->getColumnMeta(0);
    same([$column['native_type'], $column['table'], $column['precision']], ['NEWDECIMAL', 'books', 2], 'a column');
    if ($pdo->getAttribute(PDO::ATTR_EMULATE_PREPARES)) {
        $several = $pdo->query('SELECT 1; SELECT 2');
        same([$several->fetchColumn(), $several->nextRowset(), $several->fetchColumn()], [1, true, 2], 'several statements');
    }
    same([$pdo->quote("it's"), $pdo->inTransaction()], ["'it\\'s'", false], 'the rest');
    $pdo->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, false);
    $rows = 0;
    foreach ($pdo->query('SELECT * FROM books') as $row) {
        $rows++;
    }
    same($rows, 303, 'rows that are not kept');
    $pdo->setAttribute(PDO::MYSQL_ATTR_USE_BUFFERED_QUERY, true);
}

function load(Db $db): void
{
    $db->change('UPDATE books SET stock = 0');
    $books = array_column($db->rows('SELECT id FROM books ORDER BY id LIMIT 50'), 'id');
    stream_set_blocking(STDIN, false);
    echo "writes\n";
    [$done, $retried] = [0, 0];
    while (fgets(STDIN) === false && !feof(STDIN)) {
        try {
            $db->begin();
            [$book] = $db->rows('SELECT id, stock FROM books WHERE id = ? FOR UPDATE', [$books[$done % count($books)]]);
            $db->change('UPDATE books SET stock = ? WHERE id = ?', [$book['stock'] + 1, $book['id']]);
            $db->change('INSERT INTO events (number, book_id) VALUES (?, ?)', [$done + 1, $book['id']]);
            $db->commit();
            $done++;
        } catch (mysqli_sql_exception | PDOException $error) {
            $code = $error instanceof PDOException ? $error->errorInfo[1] : $error->getCode();
            if ($code !== 1213) {
                throw $error;
            }
            $retried++;
            $db->rollback();
        }
    }
    echo json_encode(['numbers' => $done, 'retried' => $retried]), "\n";
}

$db = $way === 'mysqli' ? new ByMysqli((int) $port, $database) : new ByPdo((int) $port, $database, $way === 'emulated');
$step($db);
