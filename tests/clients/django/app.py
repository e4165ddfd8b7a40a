"""A small shop with Django: `app.py PORT migrate NAME | fill | work | load SECONDS`. Ends with 1 and says why where an answer is not what it must be.

`load` writes in one process until a line comes in, and prints what it has: {"numbers": [...], "retried": N}. As every application of MySQL it runs a transaction again that
was rolled back by the server (1213); all else is an error.
"""

import datetime
import decimal
import json
import pathlib
import random
import sys
import threading
import uuid

import django
import pymysql
from django.conf import settings

# Django asks for mysqlclient, which is made of C; PyMySQL offers itself in its place.
pymysql.version_info = (2, 2, 6, "final", 0)
pymysql.install_as_MySQLdb()
sys.path.insert(0, str(pathlib.Path(__file__).parent))


def configure(port):
    settings.configure(
        SECRET_KEY="of this test", USE_TZ=True, ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
            "django.contrib.messages", "shop",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[{
            "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
            "OPTIONS": {"context_processors": [
                "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]},
        }],
        DATABASES={"default": {"ENGINE": "django.db.backends.mysql", "NAME": "django", "USER": "root", "HOST": "127.0.0.1", "PORT": port}},
    )  # fmt: skip
    django.setup()


def same(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r}, not {wanted!r}")


def refused(error, action, what):
    """In a transaction of its own, so that it leaves nothing."""
    from django.db import transaction

    try:
        with transaction.atomic():
            action()
    except error as refusal:
        return str(refusal)
    raise SystemExit(f"{what} was not refused")


def fill():
    """By the models of the first migration."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO shop_author (name, born, extra) VALUES (%s, %s, '{}')", [(f"Author {n}", f"19{n:02}-01-02") for n in range(40)])
        cursor.execute("SELECT id FROM shop_author ORDER BY id")
        rows = [(f"Book {n}", n % 20, author, f"s{n}") for author, in cursor.fetchall() for n in range(25)]
        sql = "INSERT INTO shop_book (title, price, stock, added, text, author_id, shelf) VALUES (%s, %s, 3, NOW(6), '', %s, %s)"
        cursor.executemany(sql, rows)


def work():
    from django.contrib.auth.models import User
    from django.core.paginator import Paginator
    from django.db import IntegrityError, models, transaction
    from django.test import Client
    from shop.models import Author, Book, Tag

    same(Book.objects.count(), 1000, "books")
    same(Book.objects.filter(language="en", in_stock=3).count(), 1000, "books with the new and the renamed column")
    tags = Tag.objects.bulk_create([Tag(slug=f"tag-{n}") for n in range(5)])
    tags = list(Tag.objects.order_by("id"))
    author = Author.objects.create(name="Ærøskøbing ✈", born=datetime.date(1970, 2, 28), extra={"langs": ["da", "en"], "n": 3})
    known = uuid.uuid4()
    book = Book.objects.create(author=author, title="New", price=decimal.Decimal("12.50"), uid=known, took=datetime.timedelta(hours=1, microseconds=5), text="x" * 70_000)
    book.tags.add(*tags[:3])
    found = Book.objects.select_related("author").prefetch_related("tags").get(uid=known)
    same((found.author.name, found.price, len(found.tags.all()), len(found.text)), ("Ærøskøbing ✈", decimal.Decimal("12.50"), 3, 70_000), "the new book")
    same(found.took, datetime.timedelta(hours=1, microseconds=5), "a duration")
    same(list(Author.objects.filter(extra__n=3, extra__langs__contains=["da"]).values_list("id", flat=True)), [author.id], "an author by JSON")
    best = Author.objects.annotate(n=models.Count("books"), total=models.Sum("books__price")).filter(n__gt=1).order_by("-total", "name")
    same((best[0].n, best.count()), (25, 40), "authors with many books")
    page = Paginator(Book.objects.filter(price__range=(3, 7)).order_by("price", "id"), 30).page(2)
    same((len(page.object_list), page.paginator.count), (30, 280), "a page")
    same(Book.objects.exclude(tags__slug="tag-1").filter(author__name__icontains="AUTHOR 1").count(), 11 * 25, "books by a part of the name")
    Book.objects.filter(author=author).update(in_stock=models.F("in_stock") + 5, sequel_to=Book.objects.order_by("id").first())
    same(Book.objects.get(id=book.id).in_stock, 5, "stock")
    same(Book.objects.filter(models.Exists(Tag.objects.filter(book=models.OuterRef("pk")))).count(), 1, "books with tags")
    same(Author.objects.get_or_create(name="Author 1")[1], False, "an author that is there")
    same(Book.objects.update_or_create(author=author, title="New", defaults={"price": 1})[0].id, book.id, "the book that is there")
    refused(IntegrityError, lambda: Book.objects.create(author=author, title="New", price=1), "a second book of a title")
    refused(IntegrityError, lambda: Book.objects.create(author_id=10**9, title="Nobody's", price=1), "a book of nobody")
    refused(IntegrityError, lambda: Book.objects.filter(id=book.id).update(price=-1), "a negative price")
    with transaction.atomic():
        Tag.objects.create(slug="stays")
        refused(IntegrityError, lambda: Tag.objects.create(slug="tag-1"), "a second tag")
        Tag.objects.select_for_update().get(slug="stays")
    same(Tag.objects.filter(slug="stays").count(), 1, "the tag behind a savepoint")
    first = Book.objects.order_by("id").first()
    first_author = first.author
    first_author.delete()
    same((Book.objects.count(), Book.objects.get(id=book.id).sequel_to), (976, None), "what a cascade leaves")
    User.objects.create_superuser("admin", "nobody@example.org", "a pass phrase")
    visitor = Client()
    same(visitor.login(username="admin", password="a pass phrase"), True, "the login")
    for path in ("/admin/", "/admin/shop/book/", "/admin/shop/book/?q=New", f"/admin/shop/book/{book.id}/change/", "/admin/auth/user/"):
        same(visitor.get(path).status_code, 200, path)
    answer = visitor.post("/admin/shop/tag/add/", {"slug": "by-the-admin"})
    same((answer.status_code, Tag.objects.filter(slug="by-the-admin").count()), (302, 1), "a form of the admin's")


def load():
    from django.db import OperationalError, transaction
    from shop.models import Book, Event

    done, retried, stop = [], 0, threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    books = list(Book.objects.values_list("id", flat=True)[:100])
    chance, number = random.Random(1), 0
    print("writes", flush=True)
    while not stop.is_set():
        number += 1
        book = chance.choice(books)
        while True:
            try:
                with transaction.atomic():
                    sold = Book.objects.select_for_update().get(id=book)
                    sold.in_stock += 1
                    sold.save(update_fields=["in_stock"])
                    Event.objects.create(number=number, book=sold)
                break
            except OperationalError as error:
                if error.args[0] != 1213:
                    raise
                retried += 1
        done.append(number)
        same(Event.objects.filter(number=number).count(), 1, f"event {number}")
    same(sorted(set(done) - set(Event.objects.values_list("number", flat=True))), [], "events that are lost")
    same(Event.objects.count(), len(done), "events")
    print(json.dumps({"numbers": len(done), "retried": retried}))


def main():
    configure(sys.argv[1])
    from django.core.management import call_command

    match sys.argv[2:]:
        case ["migrate", "0001"]:
            call_command("migrate", verbosity=0, app_label="shop", migration_name="0001")
        case ["migrate"]:
            call_command("migrate", verbosity=0)
            call_command("makemigrations", "--check", "--dry-run", verbosity=0)
        case ["fill"]:
            fill()
        case ["work"]:
            register_admin()
            call_command("check", "--database", "default", verbosity=0)
            work()
        case ["load"]:
            load()
        case _:
            raise SystemExit(__doc__)


def register_admin():
    from django.contrib import admin
    from django.urls import path
    from shop.models import Author, Book, Event, Tag

    class BookAdmin(admin.ModelAdmin):
        list_display, list_filter, search_fields, raw_id_fields = ["title", "author", "price"], ["language"], ["title", "author__name"], ["author", "sequel_to"]

    admin.site.register(Book, BookAdmin)
    admin.site.register([Author, Event, Tag])
    globals()["urlpatterns"] = [path("admin/", admin.site.urls)]


if __name__ == "__main__":
    main()
