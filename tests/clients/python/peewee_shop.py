"""Peewee: `PORT DATABASE STEP`, with its own migrations."""

import datetime
import decimal
import uuid

import peewee as pw
from common import main, refused, same, write
from playhouse.migrate import MySQLMigrator, migrate
from playhouse.mysql_ext import JSONField
from playhouse.reflection import Introspector
from playhouse.shortcuts import model_to_dict

DB = pw.MySQLDatabase(None)


class Base(pw.Model):
    class Meta:
        database = DB


class Author(Base):
    name = pw.CharField(60, unique=True)
    born = pw.DateField(null=True)
    extra = JSONField(null=True)

    class Meta:
        table_name = "authors"


class Book(Base):
    uid = pw.UUIDField(default=uuid.uuid4)
    title = pw.CharField(200)
    price = pw.DecimalField(10, 2, default=decimal.Decimal("1.50"))
    author = pw.ForeignKeyField(Author, null=True, backref="books", on_delete="CASCADE")
    stock = pw.IntegerField(default=0, constraints=[pw.Check("stock >= 0", "stock_there")])
    text = pw.TextField(null=True)
    cover = pw.BlobField(null=True)
    added = pw.DateTimeField(default=datetime.datetime.now)
    took = pw.TimeField(null=True)
    ok = pw.BooleanField(default=True)
    far = pw.BigIntegerField(null=True)
    weight = pw.DoubleField(null=True)

    class Meta:
        table_name = "books"
        indexes = ((("author", "title"), True),)


class Tag(Base):
    slug = pw.CharField(40, unique=True)
    books = pw.ManyToManyField(Book, backref="tags")

    class Meta:
        table_name = "tags"


class Event(Base):
    number = pw.IntegerField()
    book = pw.ForeignKeyField(Book)

    class Meta:
        table_name = "events"


def connect(port, database):
    DB.init(database, host="127.0.0.1", port=port, user="root", charset="utf8mb4")


def make(port, database):
    connect(port, database)
    tables = [Author, Book, Tag, Tag.books.get_through_model(), Event]
    DB.create_tables(tables)
    DB.create_tables(tables)
    migrator = MySQLMigrator(DB)
    Author.create(name="First")
    migrate(migrator.add_column("authors", "nick", pw.CharField(20, default="none")), migrator.add_column("authors", "boss_id", pw.ForeignKeyField(Author, Author.id, null=True, on_delete="SET NULL")))
    migrate(migrator.rename_column("authors", "nick", "alias"), migrator.add_index("authors", ("alias", "name"), True), migrator.alter_column_type("authors", "alias", pw.CharField(30, default="none")))
    found = Introspector.from_database(DB).generate_models()["authors"]
    same((sorted(found._meta.fields), found.select().count()), (["alias", "born", "boss", "extra", "id", "name"], 1), "a table that is looked at")
    migrate(migrator.drop_index("authors", "authors_alias_name"), migrator.drop_column("authors", "boss_id"), migrator.drop_column("authors", "alias"), migrator.rename_table("tags", "words"), migrator.rename_table("words", "tags"))
    same((sorted(DB.get_tables()), len(DB.get_foreign_keys("books"))), (["authors", "books", "events", "tags", "tags_books_through"], 1), "tables")


def work(port, database):
    connect(port, database)
    Author.insert_many([{"name": f"Author {n}", "extra": {"n": n}} for n in range(20)]).execute()
    authors = list(Author.select().where(Author.name.startswith("Author")).order_by(Author.id))
    with DB.atomic():
        for author in authors:
            Book.bulk_create([Book(title=f"Book {n}", price=n % 20, author=author) for n in range(25)], batch_size=10)
    made = Author.create(name="Ærøskøbing ✈", born=datetime.date(1970, 2, 28), extra={"deep": {"n": 3}})
    book = Book.create(author=made, title="One", price="12.50", cover=b"\0\xff", took=datetime.time(1, 2, 3), far=2**62, weight=1e-300, text="x" * 60_000)
    book.tags.add([Tag.create(slug="a"), Tag.create(slug="b")])
    found = Book.select(Book, Author).join(Author).where(Author.name == made.name).get()
    same((found.uid, found.price, found.took, found.far, found.weight, bytes(found.cover), found.author.extra, len(found.text)), (book.uid, decimal.Decimal("12.50"), datetime.time(1, 2, 3), 2**62, 1e-300, b"\0\xff", {"deep": {"n": 3}}, 60_000), "a book")
    same(sorted(t.slug for t in found.tags), ["a", "b"], "its tags")
    same(model_to_dict(found, recurse=False)["author"], made.id, "as a dictionary")
    page = Book.select().join(Author).where(Book.price.between(3, 7) & (Author.name % "Author 1%" | Author.born.is_null())).order_by(Book.price.desc(), Book.id)
    same((page.count(), len(page.paginate(2, 10)), [b.price for b in page.paginate(2, 10)][0]), (140, 10, 7), "a page")
    totals = Author.select(Author.name, pw.fn.COUNT(Book.id).alias("n"), pw.fn.SUM(Book.price).alias("total")).join(Book, pw.JOIN.LEFT_OUTER).group_by(Author.id).having(pw.fn.COUNT(Book.id) > 1)
    same(({(a.n, a.total) for a in totals}, len(totals)), ({(25, 200)}, 20), "totals")
    same(Author.select().where(pw.fn.JSON_EXTRACT(Author.extra, "$.deep.n") == 3).count(), 1, "by JSON")
    same([len(a.books) for a in pw.prefetch(Author.select().order_by(Author.id).limit(3), Book.select())], [0, 25, 25], "prefetched")
    change(book, made)


def change(book, author):
    Tag.insert_many([{"slug": "a"}, {"slug": "c"}]).on_conflict(preserve=[Tag.slug]).execute()
    Tag.insert(slug="a").on_conflict_ignore().execute()
    Tag.replace(slug="c").execute()
    same(Tag.get_or_create(slug="a")[1], False, "a tag that is there")
    same(Tag.select().count(), 3, "tags")
    same(Book.update(stock=Book.stock + 2).where(Book.title == "Book 1").execute(), 20, "rows changed")
    same(refused(pw.IntegrityError, lambda: Tag.create(slug="a"), "a second tag"), 1062, "the number")
    same(refused(pw.IntegrityError, lambda: Event.create(number=1, book=10**9), "an event of nothing"), 1452, "the number")
    same(refused(pw.OperationalError, lambda: Book.update(stock=-1).execute(), "a negative stock"), 3819, "the number")
    same(refused(pw.DataError, lambda: Tag.create(slug="x" * 99), "a long tag"), 1406, "the number")
    with DB.atomic() as transaction:
        Tag.create(slug="goes")
        with DB.atomic() as savepoint:
            Tag.create(slug="inside")
            savepoint.rollback()
        same(Tag.select().where(Tag.slug.in_(["goes", "inside"])).for_update().count(), 1, "inside")
        transaction.rollback()
    same(Tag.select().where(Tag.slug == "goes").count(), 0, "what is left")
    book.tags.clear()
    same(author.delete_instance(), 1, "rows deleted")
    same(Book.select().where(Book.id == book.id).count(), 0, "a book that went along")


def load(port, database):
    connect(port, database)
    Book.update(stock=0).execute()
    books = [b.id for b in Book.select(Book.id).order_by(Book.id).limit(50)]

    def one(number):
        with DB.atomic():
            book = Book.select().where(Book.id == books[number % 50]).for_update().get()
            Book.update(stock=book.stock + 1).where(Book.id == book.id).execute()
            Event.create(number=number, book=book)

    write(one, pw.OperationalError)


if __name__ == "__main__":
    main({"migrate": make, "work": work, "load": load})
