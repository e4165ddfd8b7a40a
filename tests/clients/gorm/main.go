// GORM against Apus, with AutoMigrate, or with golang-migrate for its schema: `gorm-client gorm|golang-migrate PORT DATABASE STEP`. Ends with 1 and says why where an
// answer is not what it must be.
package main

import (
	"bufio"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	migrated "github.com/golang-migrate/migrate/v4/database/mysql"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
)

//go:embed migrations/*.sql
var files embed.FS

type Author struct {
	ID        uint64
	Name      string `gorm:"size:60;uniqueIndex;not null"`
	Born      *time.Time
	Extra     map[string]any `gorm:"serializer:json;type:json"`
	Books     []Book         `gorm:"constraint:OnDelete:CASCADE,OnUpdate:CASCADE"`
	CreatedAt time.Time
	UpdatedAt time.Time
}

type Book struct {
	gorm.Model
	Title    string  `gorm:"size:100;not null;index:title_of_author,unique,priority:2"`
	AuthorID *uint64 `gorm:"index:title_of_author,unique,priority:1"`
	Author   *Author
	Price    float64 `gorm:"type:decimal(10,2);default:1.5"`
	Stock    int     `gorm:"not null;default:0;check:stock_there,stock >= 0"`
	Text     string
	Cover    []byte
	Sold     uint64
	Ok       bool   `gorm:"default:true"`
	Kind     string `gorm:"type:enum('paper','sound');default:paper"`
	Tags     []Tag  `gorm:"many2many:book_tags"`
}

type Tag struct {
	ID    uint64
	Slug  string `gorm:"size:40;unique"`
	Books []Book `gorm:"many2many:book_tags"`
}

type Event struct {
	ID     uint64
	Number int
	BookID uint
	Book   Book
}

// OldBook is what the table of books was before.
type OldBook struct {
	ID    uint
	Title string `gorm:"size:50"`
}

func (OldBook) TableName() string { return "books" }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func same(found, wanted any, what string) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Sprintf("%s: %v, not %v", what, found, wanted))
	}
}

func refused(err error, wanted error, number uint16) {
	var known *driver.MySQLError
	if wanted != nil && !errors.Is(err, wanted) || wanted == nil && (!errors.As(err, &known) || known.Number != number) {
		panic(fmt.Sprintf("%v, not %v (%d)", err, wanted, number))
	}
}

func auto(db *gorm.DB) {
	must(db.AutoMigrate(&OldBook{}))
	must(db.Create(&OldBook{Title: "Old"}).Error)
	for range 3 {
		must(db.AutoMigrate(&Author{}, &Book{}, &Tag{}, &Event{}))
	}
	m := db.Migrator()
	same([]bool{m.HasTable("book_tags"), m.HasColumn(&Book{}, "stock"), m.HasIndex(&Book{}, "title_of_author"), m.HasConstraint(&Book{}, "stock_there"), m.HasConstraint(&Author{}, "Books"), m.HasColumn(&Book{}, "nothing")},
		[]bool{true, true, true, true, true, false}, "what is there")
	types, err := m.ColumnTypes(&Book{})
	must(err)
	for _, column := range types {
		if column.Name() == "title" {
			length, _ := column.Length()
			same(length, int64(100), "the length of a title")
		}
	}
	must(m.RenameColumn(&Tag{}, "slug", "word"))
	must(m.RenameColumn(&Tag{}, "word", "slug"))
	must(m.DropConstraint(&Event{}, "fk_events_book"))
	must(m.CreateConstraint(&Event{}, "Book"))
}

func byFiles(address string) {
	source, err := iofs.New(files, "migrations")
	must(err)
	db, err := sql.Open("mysql", address+"&multiStatements=true")
	must(err)
	target, err := migrated.WithInstance(db, &migrated.Config{})
	must(err)
	m, err := migrate.NewWithInstance("iofs", source, "mysql", target)
	must(err)
	must(m.Up())
	must(m.Steps(-1))
	must(m.Down())
	must(m.Migrate(2))
	refused(m.Up(), migrate.ErrNoChange, 0)
	version, dirty, err := m.Version()
	same([]any{version, dirty, err}, []any{uint(2), false, nil}, "the version")
	var locks, other int
	must(db.QueryRow("SELECT COUNT(*) FROM schema_migrations").Scan(&locks))
	same(locks, 1, "rows of the history")
	must(target.Lock())
	must(db.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&other))
	must(target.Unlock())
	same(other, 6, "tables")
	_, _ = m.Close()
}

func work(db *gorm.DB) {
	born := time.Date(1970, 2, 28, 1, 2, 3, 456000000, time.UTC)
	var authors []Author
	for n := range 20 {
		author := Author{Name: fmt.Sprintf("Author %d", n), Extra: map[string]any{"n": float64(n)}}
		for b := range 25 {
			author.Books = append(author.Books, Book{Title: fmt.Sprintf("Book %d", b), Price: float64(b % 20)})
		}
		authors = append(authors, author)
	}
	must(db.CreateInBatches(&authors, 7).Error)
	made := Author{Name: "Ærøskøbing ✈", Born: &born, Extra: map[string]any{"deep": map[string]any{"n": 3.5}}, Books: []Book{{Title: "One", Price: 12.5, Cover: []byte{0, 255}, Sold: 1<<64 - 1, Tags: []Tag{{Slug: "a"}, {Slug: "b"}}}}}
	must(db.Create(&made).Error)
	var found Author
	must(db.Preload("Books.Tags", func(db *gorm.DB) *gorm.DB { return db.Order("slug DESC") }).First(&found, "name = ?", made.Name).Error)
	book := found.Books[0]
	same([]any{found.Born.Equal(born), found.Extra, book.Price, book.Cover, book.Sold, book.Ok, book.Kind, book.Tags[0].Slug}, []any{true, made.Extra, 12.5, []byte{0, 255}, uint64(1<<64 - 1), true, "paper", "b"}, "an author with all that is his")
	var count int64
	var page []Book
	query := db.Model(&Book{}).Joins("Author").Where("price BETWEEN ? AND ?", 3, 7).Where(db.Where("`Author`.name LIKE ?", "Author 1%").Or("`Author`.name IS NULL"))
	must(query.Count(&count).Error)
	must(query.Order("price DESC, books.id").Limit(10).Offset(10).Find(&page).Error)
	same([]any{count, len(page), page[0].Price, page[0].Author != nil}, []any{int64(77), 10, 7.0, true}, "a page")
	type total struct {
		Kind  string
		N     int
		Total float64
	}
	var totals []total
	must(db.Model(&Book{}).Select("kind, COUNT(*) n, SUM(price) total").Group("kind").Having("COUNT(*) > ?", 5).Scan(&totals).Error)
	same(totals, []total{{"paper", 501 + only(db), 4072.5 + 1.5*float64(only(db))}}, "totals")
	must(db.Where("id IN (?)", db.Model(&Book{}).Select("author_id").Where("price > ?", 18)).Find(&authors).Error)
	same(len(authors), 20, "by a subquery")
	change(db, &book, &made)
}

// One row is from before AutoMigrate.
func only(db *gorm.DB) int {
	var n int64
	must(db.Model(&Book{}).Where("title = 'Old'").Count(&n).Error)
	return int(n)
}

func change(db *gorm.DB, book *Book, author *Author) {
	must(db.Model(book).Association("Tags").Append(&Tag{Slug: "c"}))
	must(db.Model(book).Association("Tags").Delete(&book.Tags[0]))
	same(db.Model(book).Association("Tags").Count(), int64(2), "tags")
	must(db.Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "slug"}}, DoUpdates: clause.AssignmentColumns([]string{"slug"})}).Create(&[]Tag{{Slug: "a"}, {Slug: "d"}}).Error)
	must(db.Clauses(clause.OnConflict{DoNothing: true}).Create(&Tag{Slug: "a"}).Error)
	var count int64
	must(db.Model(&Tag{}).Count(&count).Error)
	same(count, int64(4), "tags after upserts")
	must(db.Model(&Book{}).Where("title = ?", "Book 1").Updates(map[string]any{"stock": gorm.Expr("stock + ?", 2), "text": "ü"}).Error)
	var tag Tag
	same(db.Where(Tag{Slug: "new"}).FirstOrCreate(&tag).RowsAffected, int64(1), "found or created")
	must(db.Delete(book).Error)
	refused(db.First(&Book{}, book.ID).Error, gorm.ErrRecordNotFound, 0)
	must(db.Unscoped().Model(book).Update("deleted_at", nil).Error)
	must(db.First(&Book{}, book.ID).Error)
	refused(db.Create(&Tag{Slug: "a"}).Error, gorm.ErrDuplicatedKey, 0)
	nobody := uint64(999_999)
	refused(db.Create(&Book{Title: "Nobody's", AuthorID: &nobody}).Error, gorm.ErrForeignKeyViolated, 0)
	refused(db.Model(book).Update("stock", -1).Error, nil, 3819)
	refused(db.Create(&Author{Name: fmt.Sprintf("%100d", 1)}).Error, nil, 1406)
	err := db.Transaction(func(tx *gorm.DB) error {
		must(tx.Create(&Tag{Slug: "goes"}).Error)
		refused(tx.Transaction(func(inner *gorm.DB) error { return inner.Create(&Tag{Slug: "goes"}).Error }), gorm.ErrDuplicatedKey, 0)
		must(tx.Clauses(clause.Locking{Strength: "UPDATE", Options: "NOWAIT"}).First(&Tag{}, "slug = ?", "goes").Error)
		return errors.New("on purpose")
	}, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	same(err.Error(), "on purpose", "the transaction")
	refused(db.First(&Tag{}, "slug = ?", "goes").Error, gorm.ErrRecordNotFound, 0)
	rows, err := db.Model(&Book{}).Where("stock = 2").Rows()
	must(err)
	seen := 0
	for rows.Next() {
		var one Book
		must(db.ScanRows(rows, &one))
		seen++
	}
	must(rows.Close())
	same(seen, 20, "rows one by one")
	must(db.Select("Tags").Unscoped().Delete(book).Error)
	must(db.Delete(author).Error)
	refused(db.Unscoped().Where("author_id = ?", author.ID).First(&Book{}).Error, gorm.ErrRecordNotFound, 0)
}

func load(db *gorm.DB) {
	var books []Book
	must(db.Order("id").Limit(50).Find(&books).Error)
	must(db.Session(&gorm.Session{AllowGlobalUpdate: true}).Unscoped().Model(&Book{}).Update("stock", 0).Error)
	var stop atomic.Bool
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		stop.Store(true)
	}()
	fmt.Println("writes")
	done, retried := 0, 0
	for !stop.Load() {
		err := db.Transaction(func(tx *gorm.DB) error {
			var book Book
			if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&book, books[done%len(books)].ID).Error; err != nil {
				return err
			}
			if err := tx.Model(&book).Update("stock", book.Stock+1).Error; err != nil {
				return err
			}
			return tx.Create(&Event{Number: done + 1, BookID: book.ID}).Error
		})
		var known *driver.MySQLError
		if errors.As(err, &known) && known.Number == 1213 {
			retried++
			continue
		}
		must(err)
		done++
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]int{"numbers": done, "retried": retried}))
}

func main() {
	way, port, database, step := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	address := fmt.Sprintf("root@tcp(127.0.0.1:%s)/%s?charset=utf8mb4&parseTime=True&loc=UTC", port, database)
	db, err := gorm.Open(mysql.Open(address), &gorm.Config{TranslateError: true, PrepareStmt: way == "golang-migrate", Logger: logger.Default.LogMode(logger.Silent)})
	must(err)
	switch {
	case step == "migrate" && way == "gorm":
		auto(db)
	case step == "migrate":
		byFiles(address)
	case step == "work":
		work(db)
	case step == "load":
		load(db)
	}
}
