# ActiveRecord with mysql2: `shop.rb PORT DATABASE STEP`. Migrations up, back and up, models with associations, locks, and its classes of errors.
require "logger"
require "active_record"
require "json"

PORT, DATABASE, STEP = ARGV
ActiveRecord::Base.establish_connection(adapter: "mysql2", host: "127.0.0.1", port: PORT.to_i, username: "root", database: DATABASE, encoding: "utf8mb4", prepared_statements: DATABASE.end_with?("prepared"))
ActiveRecord::Migration.verbose = false

def same(found, wanted, what)
  abort "#{what}: #{found.inspect}, not #{wanted.inspect}" unless found == wanted
end

def refused(kind, what)
  yield
  abort "#{what} was not refused"
rescue kind => error
  error
end

class Tables < ActiveRecord::Migration[6.1]
  def change
    create_table :authors do |t|
      t.string :name, limit: 60, null: false, index: { unique: true }
      t.date :born
      t.json :extra
      t.integer :lock_version, null: false, default: 0
      t.timestamps
    end
    create_table :books do |t|
      t.string :name, limit: 80, null: false
      t.decimal :price, precision: 10, scale: 2, default: "1.50"
      t.references :author, foreign_key: { on_delete: :cascade }
      t.binary :cover
      t.boolean :ok, null: false, default: true
      t.timestamps
    end
  end
end

class GoesOn < ActiveRecord::Migration[6.1]
  def change
    add_column :books, :stock, :integer, null: false, default: 0
    add_column :books, :text, :text, limit: 4_294_967_295, after: :name
    rename_column :books, :name, :title
    reversible { |way| way.up { change_column :books, :title, :string, limit: 200, null: false } }
    add_index :books, [:title, :author_id], unique: true, name: "title_of_author"
    add_check_constraint :books, "stock >= 0", name: "stock_there"
    create_table(:tags) { |t| t.string :slug, limit: 40, index: { unique: true } }
    create_join_table(:books, :tags) { |t| t.index [:book_id, :tag_id], unique: true }
    create_table :events do |t|
      t.integer :number, null: false
      t.belongs_to :book, null: false, foreign_key: true
    end
  end
end

class Author < ActiveRecord::Base
  has_many :books, -> { order(:id) }
end

class Book < ActiveRecord::Base
  belongs_to :author, optional: true
  has_and_belongs_to_many :tags
  validates :title, presence: true
  scope :cheap, -> { where(price: ...5) }
end

class Tag < ActiveRecord::Base
  has_and_belongs_to_many :books
end

class Event < ActiveRecord::Base
  belongs_to :book
end

def migrate
  schema = ActiveRecord::SchemaMigration
  schema.create_table
  run = ->(way, *versions) { ActiveRecord::Migrator.new(way, [Tables.new("Tables", 1), GoesOn.new("GoesOn", 2)], schema, *versions).migrate }
  run.call(:up, 1)
  ActiveRecord::Base.connection.execute("INSERT INTO books (name, created_at, updated_at) VALUES ('Old', NOW(6), NOW(6))")
  run.call(:up)
  run.call(:down, 1)
  run.call(:up)
  connection = ActiveRecord::Base.connection
  same(schema.all_versions.map(&:to_i), [1, 2], "migrations")
  same(connection.tables.sort, %w[ar_internal_metadata authors books books_tags events schema_migrations tags], "tables")
  same(connection.foreign_keys("books").map { |k| [k.column, k.to_table, k.on_delete] }, [["author_id", "authors", :cascade]], "foreign keys")
  same(connection.check_constraints("books").map(&:name), ["stock_there"], "checks")
  same(connection.indexes("books").map { |i| [i.name, i.unique] }.sort, [["index_books_on_author_id", false], ["title_of_author", true]], "indexes")
  dump = StringIO.new
  require "active_record/schema_dumper"
  ActiveRecord::SchemaDumper.dump(connection, dump)
  same(dump.string.scan(/create_table "(\w+)"/).flatten.sort, %w[authors books books_tags events tags], "what is dumped")
  Book.reset_column_information
  same(Book.pluck(:title, :stock, :price), [["Old", 0, BigDecimal("1.5")]], "the row from before")
end

def work
  20.times do |n|
    author = Author.create!(name: "Author #{n}", extra: { n: n })
    now = Time.now
    Book.insert_all!((0...25).map { |b| { title: "Book #{b}", price: b % 20, author_id: author.id, created_at: now, updated_at: now } })
  end
  made = Author.create!(name: "Ærøskøbing ✈", born: "1970-02-28", extra: { deep: { n: 3.5 } })
  book = made.books.create!(title: "One", price: "12.50", cover: "\0\xff".b, text: "ü" * 70_000, tags: [Tag.new(slug: "a"), Tag.new(slug: "b")])
  found = Author.includes(books: :tags).find_by(name: "Ærøskøbing ✈").books.first
  same([found.price, found.cover, found.text.length, found.ok, found.tags.map(&:slug).sort, found.author.extra["deep"]["n"], found.created_at], [BigDecimal("12.5"), "\0\xff".b, 70_000, true, %w[a b], 3.5, book.created_at], "a book")
  page = Book.joins(:author).where(price: 3..7).where("authors.name LIKE ?", "Author 1%").order(price: :desc, id: :asc)
  same([page.count, page.offset(10).limit(10).to_a.size, page.offset(10).first.price], [77, 10, 7], "a page")
  same(Book.joins(:author).group("authors.name").having("COUNT(*) > 1").order("authors.name").sum(:price).first, ["Author 0", 200], "totals")
  same([Book.cheap.count, Book.where.missing(:tags).count, Book.left_joins(:tags).distinct.count, Author.where("extra->>'$.n' = 3").count], [201, 501, 502, 1], "conditions")
  seen = 0
  Book.find_each(batch_size: 100) { seen += 1 }
  same(seen, 502, "in batches")
  change(book, made)
end

def change(book, author)
  Tag.upsert_all([{ slug: "a" }, { slug: "c" }])
  Tag.insert({ slug: "c" })
  same(Tag.count, 3, "tags")
  same([Tag.find_or_create_by!(slug: "d").previously_new_record?, Book.where(title: "Book 1").update_all("stock = stock + 2")], [true, 20], "changes")
  same(refused(ActiveRecord::RecordNotUnique, "a second tag") { Tag.create!(slug: "a") }.cause.error_number, 1062, "the number")
  same(refused(ActiveRecord::InvalidForeignKey, "a book of nobody") { Book.create!(title: "x", author_id: 999_999) }.cause.error_number, 1452, "the number")
  same(refused(ActiveRecord::StatementInvalid, "a negative stock") { Book.update_all(stock: -1) }.cause.error_number, 3819, "the number")
  refused(ActiveRecord::ValueTooLong, "a long tag") { Tag.create!(slug: "x" * 99) }
  refused(ActiveRecord::NotNullViolation, "no title") { Book.where(id: book.id).update_all(title: nil) }
  refused(ActiveRecord::RecordInvalid, "an empty title") { Book.create!(title: "") }
  stale = Author.find(author.id)
  author.update!(born: "2000-01-01")
  refused(ActiveRecord::StaleObjectError, "an author changed before") { stale.update!(born: "1999-01-01") }
  Tag.transaction(isolation: :repeatable_read) do
    Tag.create!(slug: "goes")
    refused(ActiveRecord::RecordNotUnique, "a second tag") { Tag.transaction(requires_new: true) { Tag.create!(slug: "goes") } }
    same(Tag.lock("FOR UPDATE NOWAIT").where(slug: "goes").to_a.size, 1, "a locked row")
    raise ActiveRecord::Rollback
  end
  same(Tag.exists?(slug: "goes"), false, "what is left")
  book.tags.clear
  author.destroy!
  same(Book.exists?(book.id), false, "a book that went along")
end

def load_it
  Book.update_all(stock: 0)
  books = Book.order(:id).limit(50).pluck(:id)
  puts "writes"
  $stdout.flush
  done = retried = 0
  until IO.select([$stdin], nil, nil, 0)
    begin
      Book.transaction do
        book = Book.lock.find(books[done % books.size])
        book.update!(stock: book.stock + 1)
        Event.create!(number: done + 1, book: book)
      end
      done += 1
    rescue ActiveRecord::Deadlocked
      retried += 1
    end
  end
  puts({ numbers: done, retried: retried }.to_json)
end

{ "migrate" => -> { migrate }, "work" => -> { work }, "load" => -> { load_it } }.fetch(STEP).call
