//! The shop with Diesel, over Debian's libmariadb: its migrations, its typed queries, upserts, prepared statements that it keeps, nested transactions.

use std::sync::atomic::Ordering;

use bigdecimal::BigDecimal;
use chrono::{NaiveDate, NaiveDateTime};
use diesel::{
    dsl::{count_star, exists, max, sql, sum},
    prelude::*,
    result::{DatabaseErrorKind, Error},
    sql_types::{Bigint, Text, Unsigned},
};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use serde_json::{Value, json};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

mod schema {
    diesel::table! {
        authors (id) {
            id -> Unsigned<Bigint>,
            name -> Varchar,
            born -> Nullable<Datetime>,
            extra -> Nullable<Json>,
        }
    }
    diesel::table! {
        books (id) {
            id -> Unsigned<Bigint>,
            deleted_at -> Nullable<Datetime>,
            title -> Varchar,
            author_id -> Nullable<Unsigned<Bigint>>,
            price -> Nullable<Numeric>,
            stock -> Bigint,
            text -> Nullable<Longtext>,
            cover -> Nullable<Longblob>,
            sold -> Nullable<Unsigned<Bigint>>,
            ok -> Nullable<Bool>,
            kind -> Nullable<Text>,
        }
    }
    diesel::table! { tags (id) { id -> Unsigned<Bigint>, slug -> Nullable<Varchar>, } }
    diesel::table! { book_tags (book_id, tag_id) { book_id -> Unsigned<Bigint>, tag_id -> Unsigned<Bigint>, } }
    diesel::table! { events (id) { id -> Unsigned<Bigint>, number -> Nullable<Bigint>, book_id -> Nullable<Unsigned<Bigint>>, } }
    diesel::joinable!(books -> authors (author_id));
    diesel::joinable!(book_tags -> books (book_id));
    diesel::joinable!(book_tags -> tags (tag_id));
    diesel::joinable!(events -> books (book_id));
    diesel::allow_tables_to_appear_in_same_query!(authors, books, tags, book_tags, events);
}
use schema::{authors, book_tags, books, events, tags};

diesel::define_sql_function! { fn last_insert_id() -> Unsigned<Bigint>; }

#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Identifiable)]
#[diesel(table_name = authors)]
struct Author {
    id: u64,
    name: String,
    born: Option<NaiveDateTime>,
    extra: Option<Value>,
}

#[derive(Insertable)]
#[diesel(table_name = authors)]
struct NewAuthor {
    name: String,
    born: Option<NaiveDateTime>,
    extra: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Identifiable, Associations, AsChangeset)]
#[diesel(table_name = books, belongs_to(Author))]
struct Book {
    id: u64,
    title: String,
    author_id: Option<u64>,
    price: Option<BigDecimal>,
    stock: i64,
    text: Option<String>,
    cover: Option<Vec<u8>>,
    sold: Option<u64>,
    ok: Option<bool>,
    kind: Option<String>,
}

#[derive(Insertable)]
#[diesel(table_name = books)]
struct NewBook {
    title: String,
    author_id: Option<u64>,
    price: Option<BigDecimal>,
    cover: Option<Vec<u8>>,
    sold: Option<u64>,
    kind: Option<&'static str>,
}

impl NewBook {
    fn of(author_id: u64, title: String, price: i64) -> Self {
        NewBook { title, author_id: Some(author_id), price: Some(price.into()), cover: None, sold: None, kind: None }
    }
}

pub fn run(address: &str, step: &str) {
    let mut db = MysqlConnection::establish(address).unwrap();
    match step {
        "migrate" => migrate(&mut db),
        "work" => work(&mut db),
        "load" => load(&mut db),
        _ => panic!("no step {step}"),
    }
}

fn kind<T: std::fmt::Debug>(result: QueryResult<T>) -> (DatabaseErrorKind, String) {
    match result {
        Err(Error::DatabaseError(kind, information)) => (kind, information.message().to_owned()),
        other => panic!("not an error of the server: {other:?}"),
    }
}

fn migrate(db: &mut MysqlConnection) {
    let done = db.run_pending_migrations(MIGRATIONS).unwrap().len();
    assert_eq!((done, db.has_pending_migration(MIGRATIONS).unwrap()), (2, false));
    db.revert_last_migration(MIGRATIONS).unwrap();
    assert_eq!(db.applied_migrations().unwrap().len(), 1);
    db.revert_all_migrations(MIGRATIONS).unwrap();
    let versions: Vec<String> =
        db.run_pending_migrations(MIGRATIONS).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(versions, ["1", "2"]);
}

fn work(db: &mut MysqlConnection) {
    for n in 0..20 {
        let author = NewAuthor { name: format!("Author {n}"), born: None, extra: Some(json!({ "n": n })) };
        diesel::insert_into(authors::table).values(author).execute(db).unwrap();
        let id: u64 = diesel::select(last_insert_id()).get_result(db).unwrap();
        let rows: Vec<NewBook> = (0..25).map(|b| NewBook::of(id, format!("Book {b}"), b % 20)).collect();
        assert_eq!(diesel::insert_into(books::table).values(rows).execute(db).unwrap(), 25);
    }
    let book = with_all_types(db);
    pages(db);
    changes(db, &book);
    errors(db, &book);
    transactions(db);
    diesel::delete(book_tags::table.filter(book_tags::book_id.eq(book.id))).execute(db).unwrap();
    diesel::delete(authors::table.find(book.author_id.unwrap())).execute(db).unwrap();
    assert_eq!(
        books::table.find(book.id).select(Book::as_select()).first(db),
        Err(Error::NotFound),
        "it goes with its author"
    );
}

fn with_all_types(db: &mut MysqlConnection) -> Book {
    let born = NaiveDate::from_ymd_opt(1970, 2, 28).unwrap().and_hms_milli_opt(1, 2, 3, 456).unwrap();
    let extra = json!({ "deep": { "n": 3.5, "list": [1, null, "ü"] } });
    let new = NewAuthor { name: "Ærøskøbing ✈".into(), born: Some(born), extra: Some(extra.clone()) };
    diesel::insert_into(authors::table).values(new).execute(db).unwrap();
    let author = authors::table.filter(authors::name.eq("Ærøskøbing ✈")).select(Author::as_select()).first(db).unwrap();
    assert_eq!((author.born, author.extra.clone()), (Some(born), Some(extra)));
    let new = NewBook {
        price: "12.50".parse().ok(),
        cover: Some(vec![0, 255]),
        sold: Some(u64::MAX),
        kind: Some("sound"),
        ..NewBook::of(author.id, "One".into(), 0)
    };
    diesel::insert_into(books::table).values(new).execute(db).unwrap();
    let all: Vec<Book> = Book::belonging_to(&author).select(Book::as_select()).load(db).unwrap();
    let book = all[0].clone();
    assert_eq!((all.len(), book.price.clone().unwrap().to_string().as_str(), book.stock), (1, "12.50", 0));
    assert_eq!(
        (book.cover.clone(), book.sold, book.ok, book.kind.as_deref()),
        (Some(vec![0, 255]), Some(u64::MAX), Some(true), Some("sound"))
    );
    diesel::insert_into(tags::table).values([tags::slug.eq("a"), tags::slug.eq("b")]).execute(db).unwrap();
    let of_book = tags::table.select((book.id.into_sql::<Unsigned<Bigint>>(), tags::id));
    diesel::insert_into(book_tags::table)
        .values(of_book)
        .into_columns((book_tags::book_id, book_tags::tag_id))
        .execute(db)
        .unwrap();
    let joined: Vec<(String, Option<String>)> = books::table
        .inner_join(book_tags::table.inner_join(tags::table))
        .select((books::title, tags::slug))
        .order(tags::slug.desc())
        .load(db)
        .unwrap();
    assert_eq!(joined, [("One".to_owned(), Some("b".to_owned())), ("One".to_owned(), Some("a".to_owned()))]);
    book
}

fn pages(db: &mut MysqlConnection) {
    let (low, high) = (BigDecimal::from(3), BigDecimal::from(7));
    let of_some = || {
        books::table
            .left_join(authors::table)
            .filter(books::price.between(low.clone(), high.clone()))
            .filter(authors::name.like("Author 1%").or(authors::name.is_null()))
    };
    let whole: i64 = of_some().count().get_result(db).unwrap();
    let page: Vec<(Book, Option<Author>)> = of_some()
        .order((books::price.desc(), books::id))
        .limit(10)
        .offset(10)
        .select((Book::as_select(), Option::<Author>::as_select()))
        .load(db)
        .unwrap();
    assert_eq!(
        (whole, page.len(), page[0].0.price.clone().unwrap().to_string().as_str(), page[0].1.is_some()),
        (77, 10, "7.00", true)
    );
    let totals: Vec<(Option<String>, i64, Option<BigDecimal>)> = books::table
        .group_by(books::kind)
        .having(count_star().gt(5))
        .select((books::kind, count_star(), sum(books::price)))
        .load(db)
        .unwrap();
    assert_eq!(totals, [(Some("paper".to_owned()), 500, "4000.00".parse().ok())]);
    let dear =
        books::table.filter(books::author_id.eq(authors::id.nullable())).filter(books::price.gt(BigDecimal::from(18)));
    assert_eq!(authors::table.filter(exists(dear)).count().get_result::<i64>(db), Ok(20));
    let last = diesel::alias!(books as last);
    let newest = last.select(max(last.field(books::id))).single_value();
    assert_eq!(
        books::table.filter(books::id.nullable().eq(newest)).select(books::title).first::<String>(db).unwrap(),
        "One"
    );
    let seen = books::table
        .select(books::title)
        .load_iter::<String, _>(db)
        .unwrap()
        .map(Result::unwrap)
        .filter(|t| t.starts_with("Book"))
        .count();
    assert_eq!(seen, 500, "rows one by one");
    let path = sql::<diesel::sql_types::Nullable<Text>>("JSON_UNQUOTE(JSON_EXTRACT(extra, '$.n'))");
    assert_eq!(
        authors::table
            .filter(authors::name.eq("Author 7"))
            .select(path)
            .first::<Option<String>>(db)
            .unwrap()
            .as_deref(),
        Some("7")
    );
}

fn changes(db: &mut MysqlConnection, book: &Book) {
    let some = books::table.filter(books::title.eq("Book 1"));
    let changed =
        diesel::update(some).set((books::stock.eq(books::stock + 2), books::text.eq("ü"))).execute(db).unwrap();
    assert_eq!(changed, 20);
    let upsert = diesel::insert_into(tags::table).values([tags::slug.eq("a"), tags::slug.eq("c")]);
    upsert.on_conflict(diesel::dsl::DuplicatedKeys).do_update().set(tags::slug.eq("a")).execute(db).unwrap();
    diesel::insert_or_ignore_into(tags::table).values(tags::slug.eq("a")).execute(db).unwrap();
    diesel::replace_into(tags::table).values(tags::slug.eq("c")).execute(db).unwrap();
    assert_eq!(tags::table.count().get_result::<i64>(db), Ok(3));
    let mut mine = book.clone();
    (mine.stock, mine.text) = (5, Some("long ".repeat(50_000)));
    diesel::update(&mine).set(&mine).execute(db).unwrap();
    assert_eq!(books::table.find(mine.id).select(Book::as_select()).first(db), Ok(mine.clone()));
    diesel::update(&mine).set(books::deleted_at.eq(sql("NOW(3)"))).execute(db).unwrap();
    let is_deleted = books::table.find(mine.id).filter(books::deleted_at.is_not_null());
    assert_eq!(diesel::select(exists(is_deleted)).get_result(db), Ok(true));
}

fn errors(db: &mut MysqlConnection, book: &Book) {
    let (twice, message) = kind(diesel::insert_into(tags::table).values(tags::slug.eq("a")).execute(db));
    assert!(
        matches!(twice, DatabaseErrorKind::UniqueViolation) && message.contains("'a' for key 'tags.slug'"),
        "{message}"
    );
    let (nobodys, message) =
        kind(diesel::insert_into(books::table).values(NewBook::of(999_999, "Nobody's".into(), 1)).execute(db));
    assert!(matches!(nobodys, DatabaseErrorKind::ForeignKeyViolation), "{message}");
    let (negative, message) = kind(diesel::update(book).set(books::stock.eq(-1)).execute(db));
    assert!(matches!(negative, DatabaseErrorKind::CheckViolation), "{message}");
    let (_, long) = kind(diesel::insert_into(authors::table).values(authors::name.eq("x".repeat(100))).execute(db));
    assert_eq!(long, "Data too long for column 'name' at row 1");
    let (nothing, message) = kind(diesel::sql_query("INSERT INTO authors (name) VALUES (NULL)").execute(db));
    assert!(matches!(nothing, DatabaseErrorKind::NotNullViolation), "{message}");
    let (_, syntax) = kind(diesel::sql_query("SELEC 1").execute(db));
    assert!(syntax.contains("near 'SELEC 1' at line 1"), "{syntax}");
}

fn transactions(db: &mut MysqlConnection) {
    let outer = db.transaction::<(), Error, _>(|db| {
        diesel::insert_into(tags::table).values(tags::slug.eq("goes")).execute(db)?;
        let inner = db.transaction::<(), Error, _>(|db| {
            diesel::insert_into(tags::table).values(tags::slug.eq("goes, too")).execute(db)?;
            Err(Error::RollbackTransaction)
        });
        assert_eq!(inner, Err(Error::RollbackTransaction));
        let inside: Vec<Option<String>> =
            tags::table.filter(tags::slug.like("goes%")).select(tags::slug).for_update().skip_locked().load(db)?;
        assert_eq!(inside, [Some("goes".to_owned())]);
        Err(Error::RollbackTransaction)
    });
    assert_eq!(outer, Err(Error::RollbackTransaction));
    assert_eq!(tags::table.filter(tags::slug.like("goes%")).count().get_result::<i64>(db), Ok(0));
}

/// Whether the transaction may be run again. Of an error at COMMIT, Diesel 2.3 does not tell the number (1213), only the text.
fn rolled_back(error: &Error) -> bool {
    match error {
        Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
        Error::DatabaseError(DatabaseErrorKind::Unknown, information) => {
            let text = information.message();
            text.starts_with("APUS-") && text.contains("was rolled back")
        }
        _ => false,
    }
}

fn load(db: &mut MysqlConnection) {
    let ids: Vec<u64> = books::table.order(books::id).limit(50).select(books::id).load(db).unwrap();
    diesel::update(books::table).set(books::stock.eq(0)).execute(db).unwrap();
    let stop = crate::stop();
    let (mut done, mut retried) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let book = ids[done % ids.len()];
        let result = db.transaction(|db| {
            let stock: i64 = books::table.find(book).select(books::stock).for_update().first(db)?;
            diesel::update(books::table.find(book)).set(books::stock.eq(stock + 1)).execute(db)?;
            diesel::insert_into(events::table)
                .values((events::number.eq(done as i64 + 1), events::book_id.eq(book)))
                .execute(db)
        });
        match result {
            Ok(_) => done += 1,
            Err(e) if rolled_back(&e) => retried += 1,
            Err(e) => panic!("{e:?}"),
        }
    }
    println!("{}", json!({ "numbers": done, "retried": retried }));
}
