"""The shop a year later: columns and tables come, go and get other names, rows are there."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        migrations.AlterField("Author", "name", models.CharField(max_length=150, unique=True)),
        migrations.AddField("Book", "language", models.CharField(max_length=8, default="en")),
        migrations.RenameField("Book", "stock", "in_stock"),
        migrations.RemoveField("Book", "shelf"),
        migrations.AddConstraint("Book", models.CheckConstraint(condition=models.Q(price__gte=0), name="price_not_negative")),
        migrations.CreateModel(
            "Happening",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.IntegerField(unique=True)),
                ("at", models.DateTimeField(auto_now_add=True)),
                ("book", models.ForeignKey("shop.Book", on_delete=django.db.models.deletion.PROTECT)),
            ],
        ),
        migrations.RenameModel("Happening", "Event"),
    ]
