"""SQLAlchemy with Alembic: `PORT DATABASE STEP`. Migrations are generated from the tables' definitions; after them Alembic must find no difference."""

import datetime
import decimal
import pathlib
import shutil
import tempfile

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from common import main, refused, same, write
from sqlalchemy import exc, orm
from sqlalchemy.dialects import mysql

NAMES = {"ix": "ix_%(column_0_label)s", "uq": "uq_%(table_name)s_%(column_0_name)s", "fk": "fk_%(table_name)s_%(column_0_name)s", "ck": "ck_%(table_name)s_%(constraint_name)s"}


class Base(orm.DeclarativeBase):
    metadata = sa.MetaData(naming_convention=NAMES)


BOOK_TAGS = sa.Table(
    "book_tags", Base.metadata,
    sa.Column("book_id", sa.ForeignKey("books.id", ondelete="CASCADE"), primary_key=True), sa.Column("tag_id", sa.ForeignKey("tags.id"), primary_key=True),
)  # fmt: skip


class Author(Base):
    __tablename__ = "authors"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(60), unique=True)
    born: orm.Mapped[datetime.date | None]
    extra: orm.Mapped[dict | None] = orm.mapped_column(sa.JSON)
    version: orm.Mapped[int] = orm.mapped_column(server_default="1")
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", cascade="all, delete-orphan", order_by="Book.id")
    __mapper_args__ = {"version_id_col": version}


class Book(Base):
    __tablename__ = "books"
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.String(200), index=True)
    text: orm.Mapped[str | None] = orm.mapped_column(mysql.LONGTEXT, deferred=True)
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(10, 2), server_default="1.50")
    stock: orm.Mapped[int] = orm.mapped_column(server_default="0")
    kind: orm.Mapped[str] = orm.mapped_column(sa.Enum("paper", "sound"), server_default="paper")
    added: orm.Mapped[datetime.datetime] = orm.mapped_column(mysql.DATETIME(fsp=6), server_default=sa.text("CURRENT_TIMESTAMP(6)"))
    cover: orm.Mapped[bytes | None] = orm.mapped_column(sa.LargeBinary)
    ok: orm.Mapped[bool] = orm.mapped_column(server_default=sa.text("1"))
    author_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("authors.id", ondelete="CASCADE"))
    author: orm.Mapped[Author | None] = orm.relationship(back_populates="books")
    tags: orm.Mapped[list["Tag"]] = orm.relationship(secondary=BOOK_TAGS, order_by="Tag.slug")
    __table_args__ = (sa.UniqueConstraint("author_id", "title"), sa.CheckConstraint("stock >= 0", name="stock"), sa.Index("dear", "price", "kind"), {"comment": "what is sold"})


class Tag(Base):
    __tablename__ = "tags"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    slug: orm.Mapped[str] = orm.mapped_column(sa.String(40), unique=True)


class Event(Base):
    __tablename__ = "events"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    number: orm.Mapped[int]
    book_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("books.id"))


def before():
    """What the tables were in the first version."""
    tables = sa.MetaData(naming_convention=NAMES)
    sa.Table("authors", tables, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(60), nullable=False, unique=True), sa.Column("born", sa.Date), sa.Column("old", sa.String(5)))
    sa.Table("books", tables, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("title", sa.String(50), nullable=False, index=True), sa.Column("price", sa.Numeric(8, 2), nullable=False, server_default="1.50"))
    return tables


def engine(port, database):
    return sa.create_engine(f"mysql+pymysql://root@127.0.0.1:{port}/{database}?charset=utf8mb4", pool_size=3)


def migrate(port, database):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="apus-alembic-"))
    scripts = shutil.copytree(pathlib.Path(__file__).parent / "alembic", folder / "scripts")
    (scripts / "versions").mkdir()
    config = Config()
    config.set_main_option("script_location", str(scripts))
    try:
        with engine(port, database).connect() as connection:
            config.attributes["connection"] = connection
            versions(config, connection)
    finally:
        shutil.rmtree(folder)


def versions(config, connection):
    config.attributes["tables"] = before()
    command.revision(config, "first", autogenerate=True)
    command.upgrade(config, "head")
    command.check(config)
    connection.execute(sa.text("INSERT INTO books (title) VALUES ('Old')"))
    connection.commit()
    config.attributes["tables"] = Base.metadata
    command.revision(config, "goes on", autogenerate=True)
    command.upgrade(config, "head")
    command.downgrade(config, "-1")
    command.upgrade(config, "head")
    # Alembic finds checks of new tables only.
    Operations(MigrationContext.configure(connection)).create_check_constraint("ck_books_stock", "books", "stock >= 0")
    command.check(config)
    same(sorted(sa.inspect(connection).get_table_names()), ["alembic_version", "authors", "book_tags", "books", "events", "tags"], "tables")
    same(sa.inspect(connection).get_check_constraints("books"), [{"name": "ck_books_stock", "sqltext": "(`stock` >= 0)"}], "checks")
    same(connection.execute(sa.text("SELECT title, stock, price FROM books")).all(), [("Old", 0, decimal.Decimal("1.50"))], "the row from before")


def work(port, database):
    with orm.Session(engine(port, database)) as session:
        read(session)
        change(session)


def read(session):
    session.add_all(Author(name=f"Author {n}", extra={"n": n}, books=[Book(title=f"Book {b}", price=b % 20) for b in range(25)]) for n in range(20))
    tags = [Tag(slug="a"), Tag(slug="b")]
    session.add(Author(name="Ærøskøbing ✈", born=datetime.date(1970, 2, 28), extra={"deep": {"n": 3.5}}, books=[Book(title="One", price=decimal.Decimal("12.50"), tags=tags, cover=b"\0\xff", text="x" * 70_000)]))
    session.commit()
    found = session.scalars(sa.select(Author).where(Author.name.startswith("Æ")).options(orm.selectinload(Author.books).joinedload(Book.tags))).one()
    book = found.books[0]
    same((book.price, book.kind, book.ok, book.cover, len(book.text), [t.slug for t in book.tags]), (decimal.Decimal("12.50"), "paper", True, b"\0\xff", 70_000, ["a", "b"]), "an author with all that is his")
    page = sa.select(Book).join(Book.author).where(Book.price.between(3, 7), sa.or_(Author.name.like("Author 1%"), Author.born.is_(None))).order_by(Book.price.desc(), Book.id)
    same((session.scalar(sa.select(sa.func.count()).select_from(page.subquery())), len(session.scalars(page.limit(10).offset(10)).all())), (140, 10), "a page")
    same(session.scalar(sa.select(sa.func.count()).where(Author.extra["deep"]["n"].as_float() == 3.5)), 1, "by JSON")
    best = sa.select(Author.name, sa.func.rank().over(order_by=sa.func.sum(Book.price).desc()).label("r")).join(Author.books).group_by(Author.id).cte("best")
    same(session.execute(sa.select(sa.func.count()).select_from(best).where(best.c.r == 1)).scalar(), 20, "a window in a CTE")
    same(len(session.execute(sa.select(Book.id).where(~Book.tags.any()).execution_options(yield_per=50)).all()), 501, "books without tags")


def change(session):
    author = session.scalars(sa.select(Author).where(Author.name == "Author 1")).one()
    session.execute(mysql.insert(Tag).values([{"slug": "a"}, {"slug": "c"}]).on_duplicate_key_update(slug=sa.text("VALUES(slug)")))
    same(session.execute(sa.update(Book).where(Book.title == "Book 2").values(stock=Book.stock + 3)).rowcount, 20, "rows changed")
    session.commit()
    duplicate = [refused(exc.IntegrityError, lambda: (session.add(Tag(slug="a")), session.flush()), "a second tag"), session.rollback()]
    nobody = [refused(exc.IntegrityError, lambda: (session.add(Event(number=1, book_id=10**9)), session.flush()), "an event of nothing"), session.rollback()]
    negative = [refused(exc.OperationalError, lambda: session.execute(sa.update(Book).values(stock=-1)), "a negative stock"), session.rollback()]
    long = [refused(exc.DataError, lambda: (session.add(Tag(slug="x" * 99)), session.flush()), "a long tag"), session.rollback()]
    same([duplicate[0], nobody[0], negative[0], long[0]], [1062, 1452, 3819, 1406], "numbers of errors")
    with session.begin_nested() as savepoint:
        session.add(Tag(slug="goes"))
        session.flush()
        savepoint.rollback()
    same(session.scalar(sa.select(sa.func.count()).where(Tag.slug == "goes")), 0, "what a savepoint takes back")
    session.execute(sa.update(Author.__table__).where(Author.id == author.id).values(version=9))
    author.born = datetime.date(1999, 1, 1)
    refused_stale(session)
    session.rollback()
    session.delete(author)
    session.commit()
    same(session.scalar(sa.select(sa.func.count(Book.id))), 477, "books that are left")


def refused_stale(session):
    try:
        session.flush()
    except orm.exc.StaleDataError:
        return
    raise SystemExit("an author that was changed before was not refused")


def load(port, database):
    make = orm.sessionmaker(engine(port, database))
    with make.begin() as session:
        session.execute(sa.update(Book).values(stock=0))
        books = session.scalars(sa.select(Book.id).order_by(Book.id).limit(50)).all()

    def one(number):
        with make.begin() as session:
            book = session.get(Book, books[number % 50], with_for_update=True)
            book.stock += 1
            session.add(Event(number=number, book_id=book.id))

    write(one, exc.OperationalError)


if __name__ == "__main__":
    main({"migrate": migrate, "work": work, "load": load})
