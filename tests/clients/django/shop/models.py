"""A book shop: what the first two migrations leave."""

from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=150, unique=True)
    born = models.DateField(null=True)
    extra = models.JSONField(default=dict)

    def __str__(self):
        return self.name


class Tag(models.Model):
    slug = models.SlugField(unique=True)


class Book(models.Model):
    title = models.CharField(max_length=200, db_index=True)
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    sequel_to = models.ForeignKey("self", null=True, on_delete=models.SET_NULL)
    tags = models.ManyToManyField(Tag)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    in_stock = models.PositiveIntegerField(default=0)
    added = models.DateTimeField(auto_now_add=True)
    text = models.TextField(blank=True)
    uid = models.UUIDField(null=True)
    took = models.DurationField(null=True)
    language = models.CharField(max_length=8, default="en")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["author", "title"], name="one_title"),
            models.CheckConstraint(condition=models.Q(price__gte=0), name="price_not_negative"),
        ]
        indexes = [models.Index(fields=["price", "added"], name="by_price")]


class Event(models.Model):
    """What has happened while data nodes were killed; `number` is the client's own."""

    number = models.IntegerField(unique=True)
    book = models.ForeignKey(Book, on_delete=models.PROTECT)
    at = models.DateTimeField(auto_now_add=True)
