"""The shop as it was founded."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            "Author",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("born", models.DateField(null=True)),
                ("extra", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            "Tag",
            [("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")), ("slug", models.SlugField(unique=True))],
        ),
        migrations.CreateModel(
            "Book",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(max_length=200, db_index=True)),
                ("price", models.DecimalField(max_digits=8, decimal_places=2)),
                ("stock", models.PositiveIntegerField(default=0)),
                ("added", models.DateTimeField(auto_now_add=True)),
                ("text", models.TextField(blank=True)),
                ("uid", models.UUIDField(null=True)),
                ("took", models.DurationField(null=True)),
                ("shelf", models.CharField(max_length=10, default="")),
                ("author", models.ForeignKey("shop.Author", on_delete=django.db.models.deletion.CASCADE, related_name="books")),
                ("sequel_to", models.ForeignKey("shop.Book", null=True, on_delete=django.db.models.deletion.SET_NULL)),
                ("tags", models.ManyToManyField("shop.Tag")),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["author", "title"], name="one_title")],
                "indexes": [models.Index(fields=["price", "added"], name="by_price")],
            },
        ),
    ]
