//! The shop with sqlx: its migrator, the binary protocol with cached statements, streams, JSON, decimals, nested transactions.

use std::sync::atomic::Ordering;

use bigdecimal::BigDecimal;
use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use sqlx::{
    Connection, Error, Executor, FromRow, MySql, MySqlPool, QueryBuilder, Row, Type,
    mysql::{MySqlDatabaseError, MySqlPoolOptions},
    types::Json,
};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../gorm/migrations");

#[derive(Debug, PartialEq, Type)]
#[sqlx(rename_all = "lowercase")]
enum Kind {
    Paper,
    Sound,
}

#[derive(Debug, FromRow)]
struct Book {
    id: u64,
    title: String,
    author_id: Option<u64>,
    price: BigDecimal,
    stock: i64,
    text: Option<String>,
    cover: Option<Vec<u8>>,
    sold: Option<u64>,
    ok: bool,
    kind: Kind,
}

const BOOK: &str = "SELECT id, title, author_id, price, stock, text, cover, sold, ok, kind FROM books WHERE id = ?";

pub fn run(address: &str, step: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pool = MySqlPoolOptions::new().max_connections(3).connect(address).await.unwrap();
        match step {
            "migrate" => migrate(&pool).await,
            "work" => work(&pool).await,
            "load" => load(&pool).await,
            _ => panic!("no step {step}"),
        }
        pool.close().await;
    });
}

fn number(error: &Error) -> u16 {
    let known = error.as_database_error().and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
    known.unwrap_or_else(|| panic!("not an error of the server: {error:?}")).number()
}

async fn migrate(pool: &MySqlPool) {
    MIGRATIONS.run(pool).await.unwrap();
    MIGRATIONS.run(pool).await.unwrap();
    MIGRATIONS.undo(pool, 1).await.unwrap();
    let stock: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'books' AND column_name = 'stock'",
    )
    .fetch_optional(pool)
    .await
    .unwrap();
    assert_eq!(stock, None, "a column of the second migration");
    MIGRATIONS.undo(pool, 0).await.unwrap();
    let (left, right) = tokio::join!(MIGRATIONS.run(pool), MIGRATIONS.run(pool));
    left.and(right).unwrap(); // they have waited for one another
    let done: Vec<(i64, bool)> =
        sqlx::query_as("SELECT version, success FROM _sqlx_migrations ORDER BY version").fetch_all(pool).await.unwrap();
    assert_eq!(done, [(1, true), (2, true)]);
}

async fn work(pool: &MySqlPool) {
    let mode: String = sqlx::query_scalar("SELECT @@sql_mode").fetch_one(pool).await.unwrap();
    assert!(mode.contains("PIPES_AS_CONCAT") && mode.contains("STRICT_TRANS_TABLES"), "{mode}");
    let text: String = sqlx::query_scalar("SELECT 'a' || ?").bind("ü").fetch_one(pool).await.unwrap();
    assert_eq!(text, "aü");
    for n in 0..20 {
        let author = sqlx::query("INSERT INTO authors (name, extra) VALUES (?, ?)")
            .bind(format!("Author {n}"))
            .bind(Json(json!({ "n": n })));
        let id = author.execute(pool).await.unwrap().last_insert_id();
        let mut books = QueryBuilder::<MySql>::new("INSERT INTO books (title, author_id, price) ");
        books.push_values(0..25, |mut row, b| {
            row.push_bind(format!("Book {b}")).push_bind(id).push_bind(BigDecimal::from(b % 20));
        });
        assert_eq!(books.build().execute(pool).await.unwrap().rows_affected(), 25);
    }
    let (author, book) = with_all_types(pool).await;
    pages(pool).await;
    changes(pool, book).await;
    errors(pool, book).await;
    transactions(pool).await;
    assert_eq!(sqlx::query("DELETE FROM book_tags").execute(pool).await.unwrap().rows_affected(), 2);
    sqlx::query("DELETE FROM authors WHERE id = ?").bind(author).execute(pool).await.unwrap();
    let gone = sqlx::query_as::<_, Book>(BOOK).bind(book).fetch_one(pool).await;
    assert!(matches!(gone, Err(Error::RowNotFound)), "{gone:?}");
}

async fn with_all_types(pool: &MySqlPool) -> (u64, u64) {
    let born = NaiveDate::from_ymd_opt(1970, 2, 28).unwrap().and_hms_milli_opt(1, 2, 3, 456).unwrap();
    let extra = json!({ "deep": { "n": 3.5, "list": [1, null, "ü"] } });
    let made = sqlx::query("INSERT INTO authors (name, born, extra, created_at) VALUES (?, ?, ?, ?)")
        .bind("Ærøskøbing ✈")
        .bind(born)
        .bind(Json(&extra))
        .bind(born.and_utc())
        .execute(pool)
        .await
        .unwrap();
    let author = made.last_insert_id();
    let book = sqlx::query(
        "INSERT INTO books (title, author_id, price, cover, sold, kind, text) VALUES ('One', ?, ?, ?, ?, ?, ?)",
    )
    .bind(author)
    .bind("12.50".parse::<BigDecimal>().unwrap())
    .bind(&[0u8, 255][..])
    .bind(u64::MAX)
    .bind(Kind::Sound)
    .bind("x".repeat(100_000))
    .execute(pool)
    .await
    .unwrap()
    .last_insert_id();
    let found: (String, NaiveDateTime, Value, DateTime<Utc>, Option<NaiveDateTime>) =
        sqlx::query_as("SELECT name, born, extra, created_at, updated_at FROM authors WHERE id = ?")
            .bind(author)
            .fetch_one(pool)
            .await
            .unwrap();
    assert_eq!(found, ("Ærøskøbing ✈".into(), born, extra, born.and_utc(), None));
    let one = sqlx::query_as::<_, Book>(BOOK).bind(book).fetch_one(pool).await.unwrap();
    assert_eq!((one.id, one.title.as_str(), one.author_id), (book, "One", Some(author)));
    assert_eq!((one.price.to_string().as_str(), one.stock, one.text.unwrap().len()), ("12.50", 0, 100_000));
    assert_eq!((one.cover, one.sold, one.ok, one.kind), (Some(vec![0, 255]), Some(u64::MAX), true, Kind::Sound));
    for slug in ["a", "b"] {
        let tag =
            sqlx::query("INSERT INTO tags (slug) VALUES (?)").bind(slug).execute(pool).await.unwrap().last_insert_id();
        sqlx::query("INSERT INTO book_tags VALUES (?, ?)").bind(book).bind(tag).execute(pool).await.unwrap();
    }
    (author, book)
}

async fn pages(pool: &MySqlPool) {
    let query = "SELECT b.id, price, a.name, COUNT(*) OVER () AS whole FROM books b LEFT JOIN authors a ON a.id = b.author_id
                 WHERE price BETWEEN ? AND ? AND (a.name LIKE ? OR a.name IS NULL) ORDER BY price DESC, b.id LIMIT ? OFFSET ?";
    let page = sqlx::query(query).bind(3).bind(7).bind("Author 1%").bind(10).bind(10).fetch_all(pool).await.unwrap();
    let first: (u64, BigDecimal, Option<String>, i64) = FromRow::from_row(&page[0]).unwrap();
    assert_eq!((page.len(), first.1.to_string().as_str(), first.2.is_some(), first.3), (10, "7.00", true, 77));
    let totals: Vec<(Kind, i64, BigDecimal)> =
        sqlx::query_as("SELECT kind, COUNT(*), SUM(price) FROM books GROUP BY kind HAVING COUNT(*) > ? ORDER BY kind")
            .bind(0)
            .fetch_all(pool)
            .await
            .unwrap();
    assert_eq!(totals, [(Kind::Paper, 500, "4000.00".parse().unwrap()), (Kind::Sound, 1, "12.50".parse().unwrap())]);
    let mut rows =
        sqlx::query("SELECT title FROM books WHERE id IN (SELECT MIN(id) FROM books GROUP BY author_id)").fetch(pool);
    let mut seen = 0;
    while let Some(row) = rows.try_next().await.unwrap() {
        assert!(!row.get::<&str, _>(0).is_empty());
        seen += 1;
    }
    assert_eq!(seen, 21, "rows one by one");
    drop(rows);
    let described =
        pool.describe(sqlx::SqlStr::from_static("SELECT id, extra, born FROM authors WHERE id = ?")).await.unwrap();
    let types: Vec<String> = described.columns().iter().map(|c| sqlx::Column::type_info(c).to_string()).collect();
    assert_eq!(types, ["BIGINT UNSIGNED", "JSON", "DATETIME"]);
}

async fn changes(pool: &MySqlPool, book: u64) {
    let more = sqlx::query("UPDATE books SET stock = stock + ?, text = ? WHERE title = ?")
        .bind(2)
        .bind("ü")
        .bind("Book 1")
        .execute(pool)
        .await
        .unwrap();
    assert_eq!(more.rows_affected(), 20);
    let again =
        sqlx::query("UPDATE books SET text = ? WHERE title = ?").bind("ü").bind("Book 1").execute(pool).await.unwrap();
    assert_eq!(again.rows_affected(), 20, "rows found, as the driver asks for them");
    let upsert = "INSERT INTO tags (slug) VALUES (?), (?) ON DUPLICATE KEY UPDATE slug = VALUES(slug)";
    sqlx::query(upsert).bind("a").bind("c").execute(pool).await.unwrap();
    sqlx::query("INSERT IGNORE INTO tags (slug) VALUES (?)").bind("a").execute(pool).await.unwrap();
    let tags: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM tags").fetch_one(pool).await.unwrap();
    assert_eq!(tags, 3);
    sqlx::query("UPDATE books SET deleted_at = NOW(3) WHERE id = ?").bind(book).execute(pool).await.unwrap();
    let is_deleted: bool = sqlx::query_scalar("SELECT deleted_at IS NOT NULL FROM books WHERE id = ?")
        .bind(book)
        .fetch_one(pool)
        .await
        .unwrap();
    assert!(is_deleted);
    let mut several = sqlx::raw_sql("SELECT 1; SELECT 'two', 2; DO 0").fetch_many(pool);
    let (mut rows, mut ends) = (0, 0);
    while let Some(step) = several.try_next().await.unwrap() {
        if step.is_right() { rows += 1 } else { ends += 1 }
    }
    assert_eq!((rows, ends), (2, 3), "several statements at once");
}

async fn errors(pool: &MySqlPool, book: u64) {
    let twice = sqlx::query("INSERT INTO tags (slug) VALUES ('a')").execute(pool).await.unwrap_err();
    assert!(twice.as_database_error().unwrap().is_unique_violation() && number(&twice) == 1062, "{twice:?}");
    let nobodys = sqlx::query("INSERT INTO books (title, author_id) VALUES ('Nobody''s', 999999)")
        .execute(pool)
        .await
        .unwrap_err();
    assert!(nobodys.as_database_error().unwrap().is_foreign_key_violation() && number(&nobodys) == 1452, "{nobodys:?}");
    let negative = sqlx::query("UPDATE books SET stock = -1 WHERE id = ?").bind(book).execute(pool).await.unwrap_err();
    assert!(negative.as_database_error().unwrap().is_check_violation() && number(&negative) == 3819, "{negative:?}");
    let long =
        sqlx::query("INSERT INTO authors (name) VALUES (?)").bind("x".repeat(100)).execute(pool).await.unwrap_err();
    assert_eq!(number(&long), 1406);
    let nothing =
        sqlx::query("INSERT INTO authors (name) VALUES (?)").bind(None::<String>).execute(pool).await.unwrap_err();
    assert!(
        matches!(nothing.as_database_error().unwrap().kind(), sqlx::error::ErrorKind::NotNullViolation)
            && number(&nothing) == 1048,
        "{nothing:?}"
    );
    let syntax = sqlx::query("SELEC 1").execute(pool).await.unwrap_err();
    assert_eq!(number(&syntax), 1064);
}

async fn transactions(pool: &MySqlPool) {
    let mut outer = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO tags (slug) VALUES ('goes')").execute(&mut *outer).await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    sqlx::query("INSERT INTO tags (slug) VALUES ('goes, too')").execute(&mut *inner).await.unwrap();
    inner.rollback().await.unwrap();
    let inside: Vec<String> = sqlx::query_scalar("SELECT slug FROM tags WHERE slug LIKE 'goes%' FOR UPDATE NOWAIT")
        .fetch_all(&mut *outer)
        .await
        .unwrap();
    assert_eq!(inside, ["goes"]);
    drop(outer); // rolls back
    let left: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM tags WHERE slug LIKE 'goes%'").fetch_one(pool).await.unwrap();
    assert_eq!(left, 0);
    let mut other = pool.begin_with("START TRANSACTION READ ONLY").await.unwrap();
    let refused = sqlx::query("DELETE FROM tags").execute(&mut *other).await.unwrap_err();
    assert_eq!(number(&refused), 1792);
}

async fn load(pool: &MySqlPool) {
    let ids: Vec<u64> = sqlx::query_scalar("SELECT id FROM books ORDER BY id LIMIT 50").fetch_all(pool).await.unwrap();
    sqlx::query("UPDATE books SET stock = 0").execute(pool).await.unwrap();
    let stop = crate::stop();
    let (mut done, mut retried) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        match one(pool, ids[done % ids.len()], done as i64 + 1).await {
            Ok(()) => done += 1,
            Err(e) if number(&e) == 1213 => retried += 1,
            Err(e) => panic!("{e:?}"),
        }
    }
    println!("{}", json!({ "numbers": done, "retried": retried }));
}

async fn one(pool: &MySqlPool, book: u64, event: i64) -> Result<(), Error> {
    let mut transaction = pool.begin().await?;
    let stock: i64 = sqlx::query_scalar("SELECT stock FROM books WHERE id = ? FOR UPDATE")
        .bind(book)
        .fetch_one(&mut *transaction)
        .await?;
    sqlx::query("UPDATE books SET stock = ? WHERE id = ?")
        .bind(stock + 1)
        .bind(book)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("INSERT INTO events (number, book_id) VALUES (?, ?)")
        .bind(event)
        .bind(book)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}
