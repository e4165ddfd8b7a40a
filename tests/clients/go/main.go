// A session of go-sql-driver against Apus: prints `ok NAME` or `FAIL NAME: reason` per case.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

func run(name string, f func() error) {
	if err := f(); err != nil {
		fmt.Printf("FAIL %s: %v\n", name, err)
		return
	}
	fmt.Printf("ok %s\n", name)
}

func wantError(err error, number uint16, state string) error {
	var found *mysql.MySQLError
	if !errors.As(err, &found) {
		return fmt.Errorf("wanted error %d, got %v", number, err)
	}
	if found.Number != number || string(found.SQLState[:]) != state {
		return fmt.Errorf("wanted %d (%s), got %d (%s)", number, state, found.Number, found.SQLState)
	}
	return nil
}

func types(db *sql.DB) error {
	if _, err := db.Exec("CREATE TABLE go_t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, n BIGINT, f DOUBLE, s VARCHAR(50), " +
		"b VARBINARY(50), d DECIMAL(10,2), at DATETIME(6), UNIQUE KEY one_s (s))"); err != nil {
		return err
	}
	at := time.Date(2024, 2, 29, 1, 2, 3, 456789000, time.UTC)
	result, err := db.Exec("INSERT INTO go_t (n, f, s, b, d, at) VALUES (?, ?, ?, ?, ?, ?)", int64(-7), 2.5, "größer", []byte{0, 255}, "12.50", at)
	if err != nil {
		return err
	}
	id, err := result.LastInsertId()
	if err != nil || id < 1 {
		return fmt.Errorf("insert id %d, %v", id, err)
	}
	var n int64
	var f float64
	var s, d string
	var b []byte
	var found time.Time
	// With an argument: prepared, binary rows.
	if err := db.QueryRow("SELECT n, f, s, b, d, at FROM go_t WHERE id = ?", id).Scan(&n, &f, &s, &b, &d, &found); err != nil {
		return err
	}
	if n != -7 || f != 2.5 || s != "größer" || string(b) != "\x00\xff" || d != "12.50" || !found.Equal(at) {
		return fmt.Errorf("found %v %v %v %v %v %v", n, f, s, b, d, found)
	}
	// Without: text rows.
	return db.QueryRow(fmt.Sprintf("SELECT at FROM go_t WHERE id = %d", id)).Scan(&found)
}

func prepared(db *sql.DB) error {
	statement, err := db.Prepare("INSERT INTO go_t (n, s) VALUES (?, ?)")
	if err != nil {
		return err
	}
	defer statement.Close()
	for i := 0; i < 50; i++ {
		if _, err := statement.Exec(i, fmt.Sprintf("p%d", i)); err != nil {
			return err
		}
	}
	rows, err := db.Query("SELECT n, s FROM go_t WHERE s IN (?, ?, ?) ORDER BY n", "p3", "p1", "p2")
	if err != nil {
		return err
	}
	defer rows.Close()
	next := 1
	for rows.Next() {
		var n int
		var s string
		if err := rows.Scan(&n, &s); err != nil {
			return err
		}
		if n != next || s != fmt.Sprintf("p%d", next) {
			return fmt.Errorf("row %d is %d, %s", next, n, s)
		}
		next++
	}
	if next != 4 {
		return fmt.Errorf("%d rows", next-1)
	}
	return rows.Err()
}

func transactions(db *sql.DB) error {
	for _, commit := range []bool{false, true} {
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE go_t SET n = ? WHERE s = ?", 1000, "p5"); err != nil {
			return err
		}
		end := tx.Rollback
		wanted := 5
		if commit {
			end, wanted = tx.Commit, 1000
		}
		if err := end(); err != nil {
			return err
		}
		var n int
		if err := db.QueryRow("SELECT n FROM go_t WHERE s = 'p5'").Scan(&n); err != nil || n != wanted {
			return fmt.Errorf("commit %v: %d, %v", commit, n, err)
		}
	}
	return nil
}

func failures(db *sql.DB) error {
	_, err := db.Exec("INSERT INTO go_t (s) VALUES (?)", "p1")
	if err := wantError(err, 1062, "23000"); err != nil {
		return err
	}
	_, err = db.Exec("SELECT * FROM no_such_table")
	if err := wantError(err, 1146, "42S02"); err != nil {
		return err
	}
	_, err = db.Prepare("SELEKT ?")
	return wantError(err, 1064, "42000")
}

// Long values both ways over compressed packets.
func compressed(db *sql.DB) error {
	var name, value string
	if err := db.QueryRow("SHOW STATUS LIKE 'Compression_algorithm'").Scan(&name, &value); err != nil || value != "zlib" {
		return fmt.Errorf("%s is %s, %v", name, value, err)
	}
	for _, size := range []int{1, 60, 100_000, 20_000_000} {
		sent := strings.Repeat("größer ", size/8+1)
		var found string
		if err := db.QueryRow("SELECT CAST(? AS CHAR)", sent).Scan(&found); err != nil || found != sent {
			return fmt.Errorf("%d bytes came back as %d, %v", len(sent), len(found), err)
		}
	}
	return nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "compress" {
		dsn := fmt.Sprintf("root@tcp(%s:%s)/%s?compress=true&maxAllowedPacket=0", os.Getenv("APUS_HOST"), os.Getenv("APUS_PORT"), os.Getenv("APUS_DB"))
		db, err := sql.Open("mysql", dsn)
		if err != nil {
			fmt.Printf("FAIL open: %v\n", err)
			return
		}
		defer db.Close()
		run("compressed packets", func() error { return compressed(db) })
		return
	}
	dsn := fmt.Sprintf("root@tcp(%s:%s)/%s?parseTime=true&timeout=10s", os.Getenv("APUS_HOST"), os.Getenv("APUS_PORT"), os.Getenv("APUS_DB"))
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		fmt.Printf("FAIL open: %v\n", err)
		return
	}
	defer db.Close()
	run("ping", db.Ping)
	run("types", func() error { return types(db) })
	run("prepared statements", func() error { return prepared(db) })
	run("transactions", func() error { return transactions(db) })
	run("errors", func() error { return failures(db) })
}
