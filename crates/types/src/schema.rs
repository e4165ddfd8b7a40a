//! A table's definition as every layer sees it, and the checks that make one acceptable.
//!
//! The wire and disk form is the prost message in `apus-signal::schema`; this is the domain type, with the row layout
//! computed once.

use std::fmt;

use crate::{
    ErrorCode,
    collate::Collation,
    foreign_key::{ForeignKey, Held},
    form::{self, OlderForm, Source},
    full_text::{self, FullText},
    ids::{IndexNo, TableId},
    limits, list,
    row::RowLayout,
    rules::{CheckDef, Generated, TriggerDef},
};

/// Names that an ENUM or a SET gives to numbers: the first is 1, or the lowest bit. Two handles are equal if they are the same list: whoever makes them keeps each list once.
#[derive(Clone, Copy)]
pub struct Labels(pub &'static LabelList);

/// Distinct names.
#[derive(PartialEq, Eq, Hash)]
pub struct LabelList(pub Vec<String>);

impl PartialEq for Labels {
    fn eq(&self, other: &Labels) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Labels {}
impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} labels", self.0.0.len())
    }
}

/// Type of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    /// `bits` is 8, 16, 24, 32 or 64.
    Int {
        bits: u8,
        unsigned: bool,
    },
    /// Precision 1..=38 (a limit of the 128-bit representation; MySQL allows 65), scale <= precision and <= 30.
    Decimal {
        precision: u8,
        scale: u8,
        unsigned: bool,
    },
    Float,
    Double,
    /// Length in characters.
    Char {
        length: u16,
        collation: Collation,
    },
    VarChar {
        length: u16,
        collation: Collation,
    },
    /// Length in bytes; stored padded with zero bytes.
    Binary {
        length: u16,
    },
    VarBinary {
        length: u16,
    },
    /// Length in bytes.
    Text {
        length: u32,
        collation: Collation,
    },
    Blob {
        length: u32,
    },
    Date,
    /// Decimals of a second, 0..=6.
    DateTime {
        decimals: u8,
    },
    Timestamp {
        decimals: u8,
    },
    Time {
        decimals: u8,
    },
    Year,
    /// ENUM: the number of a label, 0 for a value that is none of them; SET: a bit for each label. `bits` as of an integer without sign, which it is in the data nodes.
    Label {
        bits: u8,
        is_set: bool,
        collation: Collation,
        labels: Labels,
    },
    /// JSON, in a form that SQL knows: bytes in the data nodes.
    Json,
    /// BIT: so many bits, 1..=64; an integer without sign that has room for them in the data nodes.
    Bit {
        length: u8,
    },
}

impl ColumnType {
    /// As the data nodes have it.
    #[must_use]
    pub fn stored(self) -> ColumnType {
        match self {
            ColumnType::Label { bits, .. } => ColumnType::Int { bits, unsigned: true },
            ColumnType::Json => ColumnType::Blob { length: u32::MAX },
            ColumnType::Bit { length } => ColumnType::Int { bits: bits_for(length), unsigned: true },
            other => other,
        }
    }
    /// Bytes in the fixed part of a row, or `None` for a column of the variable part.
    pub fn fixed_bytes(self) -> Option<usize> {
        Some(match self {
            ColumnType::Int { bits, .. } | ColumnType::Label { bits, .. } => usize::from(bits / 8),
            ColumnType::Bit { length } => usize::from(bits_for(length) / 8),
            ColumnType::Decimal { .. } => 16,
            ColumnType::Float | ColumnType::Date => 4,
            ColumnType::Double
            | ColumnType::DateTime { .. }
            | ColumnType::Timestamp { .. }
            | ColumnType::Time { .. } => 8,
            ColumnType::Year => 2,
            _ => return None,
        })
    }
    /// The collation of a text column.
    pub fn collation(self) -> Option<Collation> {
        match self {
            ColumnType::Char { collation, .. }
            | ColumnType::VarChar { collation, .. }
            | ColumnType::Text { collation, .. }
            | ColumnType::Label { collation, .. } => Some(collation),
            _ => None,
        }
    }
    pub fn is_text(self) -> bool {
        self.collation().is_some()
    }
}

/// What a column gets when an INSERT does not name it.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum DefaultValue {
    /// No DEFAULT clause: NULL where allowed, otherwise an error in strict mode.
    #[default]
    None,
    Null,
    /// The literal as written, without quotes; converted by the column's type.
    Literal(String),
    CurrentTimestamp,
    /// `DEFAULT (expression)`, as SQL writes it.
    Expression(String),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    pub name: String,
    pub ty: ColumnType,
    pub nullable: bool,
    pub default: DefaultValue,
    pub auto_increment: bool,
    pub on_update_now: bool,
    pub comment: String,
    /// The type as it was declared, for SHOW CREATE TABLE (`int(11)`, `bool` -> `tinyint(1)`); empty: derived from `ty`.
    pub declared: String,
    /// What SQL makes of the integers or bytes of this column, as the data nodes keep it; where the type says it, that counts.
    pub form: Form,
    /// Its value is computed from the others.
    pub generated: Option<Generated>,
    /// `*` does not stand for it.
    pub invisible: bool,
}

impl Column {
    /// One that may be NULL, with no DEFAULT and nothing else said of it.
    pub fn new(name: impl Into<String>, ty: ColumnType) -> Column {
        Column {
            name: name.into(),
            ty,
            nullable: true,
            default: DefaultValue::None,
            auto_increment: false,
            on_update_now: false,
            comment: String::new(),
            declared: String::new(),
            form: Form::Plain,
            generated: None,
            invisible: false,
        }
    }
}

/// What a column of integers or bytes is to SQL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Form {
    #[default]
    Plain,
    /// ENUM or SET with these labels.
    Labels { is_set: bool, collation: Collation, labels: Vec<String> },
    /// JSON documents.
    Json,
    /// BIT of this length.
    Bit { length: u8 },
}

/// Bits of the integer that has room for so many.
fn bits_for(length: u8) -> u8 {
    match length {
        0..=8 => 8,
        9..=16 => 16,
        17..=24 => 24,
        25..=32 => 32,
        _ => 64,
    }
}

/// Whether reads may use an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexState {
    /// Being filled: writes maintain it, reads must not use it.
    Building,
    Ready,
}

/// A secondary index. Every one has an ordered tree in each fragment, but for those with a list; a unique one has a hidden table besides, keyed by the
/// encoded index key and distributed on its own, whose rows name the primary key (NDB: unique hash index).
#[derive(Clone, PartialEq, Debug)]
pub struct IndexDef {
    pub no: IndexNo,
    pub name: String,
    /// Column numbers.
    pub columns: Vec<u16>,
    /// Of each column how many of its first characters (bytes, of binary columns) are in the key, 0: all. Empty: all of all columns.
    pub prefixes: Vec<u32>,
    pub unique: bool,
    /// The place of the column that is a list of keys ([`crate::list`]): all of the index, and the other columns are named for those who show it. Such an index has
    /// entries in its hidden table alone.
    pub list: Option<u16>,
    /// The hidden table of a unique index, or of one with a list.
    pub hidden_table: Option<TableId>,
    pub state: IndexState,
}

impl IndexDef {
    /// Some column is in the key with its beginning only: the key says less than the row.
    pub fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }
    /// Its entries have all of its columns, one for each row.
    pub fn is_whole(&self) -> bool {
        self.list.is_none() && !self.has_prefixes()
    }
    /// The column that is a list of keys.
    pub fn list_column(&self) -> Option<u16> {
        self.list.and_then(|at| self.columns.get(usize::from(at))).copied()
    }
    /// How much of the column at this place is in the key; `None`: all of it.
    pub fn prefix(&self, at: usize) -> Option<usize> {
        self.prefixes.get(at).filter(|n| **n > 0).map(|n| *n as usize)
    }
}

/// What a commit that changes a table waits for; the strongest of the cluster's, the session's and the table's class counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// What the others say.
    #[default]
    Replicated,
    /// It is on the disks of all replicas.
    Disk,
    /// Nothing: its rows are in memory only, and gone after a start of the cluster from the disks. The definition stays.
    None,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TableSchema {
    pub id: TableId,
    /// Grows with each change of this table; carried by every operation.
    pub version: u32,
    pub database: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// Column numbers of the primary key, in key order.
    pub primary_key: Vec<u16>,
    /// The first so many columns of the primary key place the row (default: all).
    pub distribution_columns: u16,
    /// The primary key is a column that the user does not see (none was declared).
    pub hidden_key: bool,
    /// Secondary indexes; the primary key's ordered index is number 0 and not listed.
    pub indexes: Vec<IndexDef>,
    /// For the hidden table of an index: the table it belongs to.
    pub base_table: Option<TableId>,
    /// For one of these: its keys are read in their order too, because a row has several.
    pub ordered: bool,
    pub collation: Collation,
    pub comment: String,
    /// ENGINE= as written, accepted and remembered.
    pub engine: String,
    pub durability: Durability,
    /// With which rows are written, and those that rows may still have.
    pub form: u8,
    pub older: Vec<OlderForm>,
    /// What its rows refer to.
    pub foreign_keys: Vec<ForeignKey>,
    pub held: Held,
    /// CHECK constraints in the order of their names.
    pub checks: Vec<CheckDef>,
    /// Indexes that plans do without.
    pub invisible_indexes: Vec<IndexNo>,
    /// Parts of indexes that were defined DESC: the index, and the place in it. For those who show definitions: entries ascend, and are read from either end.
    pub descending: Vec<(IndexNo, u16)>,
    pub full_texts: Vec<FullText>,
    /// In the order in which they run.
    pub triggers: Vec<TriggerDef>,
    layout: RowLayout,
    constrained: bool,
}

/// Columns of the hidden table of an index: encoded key of the entry, distribution hash of the base row, encoded primary key.
pub const HIDDEN_KEY_COLUMN: u16 = 0;
pub const HIDDEN_HASH_COLUMN: u16 = 1;
pub const HIDDEN_PK_COLUMN: u16 = 2;

impl TableSchema {
    /// A table without secondary indexes; call [`TableSchema::validate`] before use.
    pub fn new(database: &str, name: &str, columns: Vec<Column>, primary_key: Vec<u16>) -> TableSchema {
        let layout = RowLayout::new(columns.iter().map(|c| c.ty));
        TableSchema {
            id: TableId(0),
            version: 1,
            database: database.to_owned(),
            name: name.to_owned(),
            distribution_columns: primary_key.len() as u16,
            columns,
            primary_key,
            hidden_key: false,
            indexes: Vec::new(),
            base_table: None,
            ordered: false,
            // SQL says what its tables have; others have no texts.
            collation: Collation::Utf8mb4GeneralCi,
            comment: String::new(),
            engine: String::new(),
            durability: Durability::default(),
            form: 0,
            older: Vec::new(),
            foreign_keys: Vec::new(),
            held: Held::default(),
            checks: Vec::new(),
            invisible_indexes: Vec::new(),
            descending: Vec::new(),
            full_texts: Vec::new(),
            triggers: Vec::new(),
            layout,
            constrained: false,
        }
    }

    /// The hidden table of a unique index, or of one with a list.
    pub fn hidden_for(base: &TableSchema, index: &IndexDef) -> TableSchema {
        let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
        let columns = vec![
            column("index_key", ColumnType::VarBinary { length: u16::MAX }),
            column("distribution_hash", ColumnType::Int { bits: 64, unsigned: true }),
            column("primary_key", ColumnType::VarBinary { length: u16::MAX }),
        ];
        let kind = if index.list.is_some() { "list" } else { "unique" };
        let name = format!("#{kind}#{}#{}", base.name, index.name);
        let mut table = TableSchema::new(&base.database, &name, columns, vec![HIDDEN_KEY_COLUMN]);
        table.base_table = Some(base.id);
        table.ordered = index.list.is_some();
        table.durability = base.durability;
        table
    }

    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Who writes rows must do more than their types say: for a CHECK constraint, a generated column, a trigger.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.constrained
    }

    /// Rebuilds what is derived from the columns and constraints; needed after changing them.
    pub fn refresh(&mut self) {
        self.layout = RowLayout::with_forms(self.columns.iter().map(|c| c.ty), self.form, &self.older);
        self.constrained =
            !self.checks.is_empty() || !self.triggers.is_empty() || self.columns.iter().any(|c| c.generated.is_some());
    }

    /// Other columns, of which `from` says what rows have there that were written before. Keys and indexes keep their columns.
    ///
    /// # Errors
    /// A column of a key or an index would be gone or be stored otherwise, or there were too many such changes.
    pub fn change_columns(&mut self, columns: Vec<Column>, from: Vec<Source>) -> Result<(), (ErrorCode, String)> {
        let bad = |what: String| Err((ErrorCode::InvalidSchema, what));
        if columns.len() != from.len() {
            return bad(format!("{} columns come from {}", columns.len(), from.len()));
        }
        for (column, source) in columns.iter().zip(&from) {
            let Source::Kept(at) = source else { continue };
            let Some(old) = self.columns.get(usize::from(*at)).filter(|old| form::same_bytes(old.ty, column.ty)) else {
                return bad(format!("the rows have another column in the place of '{}'", column.name));
            };
            let is_key = self.primary_key.contains(at) || self.indexes.iter().any(|i| i.columns.contains(at));
            if is_key && old.ty.collation() != column.ty.collation() {
                return bad(format!("an index orders '{}' by another collation", column.name));
            }
            if is_key && old.nullable != column.nullable {
                return bad(format!("a key is encoded for '{}' with or without NULL", column.name));
            }
        }
        let now = |old: &u16| {
            let at = from.iter().position(|source| *source == Source::Kept(*old));
            at.map(|at| at as u16).ok_or_else(|| {
                let name = self.columns.get(usize::from(*old)).map_or("", |c| &c.name);
                (ErrorCode::InvalidSchema, format!("'{name}' is a column of a key or an index"))
            })
        };
        let primary_key: Result<Vec<u16>, _> = self.primary_key.iter().map(now).collect();
        let indexes: Result<Vec<Vec<u16>>, _> =
            self.indexes.iter().map(|index| index.columns.iter().map(now).collect()).collect();
        let (primary_key, indexes) = (primary_key?, indexes?);
        let referring: Result<Vec<Vec<u16>>, _> =
            self.foreign_keys.iter().map(|key| key.columns.iter().map(now).collect()).collect();
        let referring = referring?;
        let is_same_form = from.iter().enumerate().all(|(i, source)| *source == Source::Kept(i as u16))
            && columns.len() == self.columns.len();
        if !is_same_form {
            let Some(number) = self.form.checked_add(1) else {
                return Err((ErrorCode::NotSupported, format!("{} changes of columns", form::FORMS_MAX)));
            };
            let types = self.columns.iter().map(|c| c.ty.stored()).collect();
            self.older = form::change(&self.older, self.form, types, &from);
            self.form = number;
        }
        self.primary_key = primary_key;
        self.indexes.iter_mut().zip(indexes).for_each(|(index, columns)| index.columns = columns);
        self.foreign_keys.iter_mut().zip(referring).for_each(|(key, columns)| key.columns = columns);
        self.full_texts = full_text::moved(&self.full_texts, &from);
        self.columns = columns;
        self.refresh();
        Ok(())
    }

    /// Writers of its rows have to look after other tables.
    #[inline]
    pub fn is_constrained(&self) -> bool {
        self.held.is_referenced || !self.foreign_keys.is_empty()
    }

    /// The table has no rows yet, so none of an older form.
    pub fn forget_forms(&mut self) {
        self.form = 0;
        self.older.clear();
        self.refresh();
    }

    /// The index has the columns that the one with its number had in an earlier definition, wherever they stand now.
    pub fn keeps_index(&self, index: &IndexDef, earlier: &TableSchema) -> bool {
        let Some(before) = earlier.index(index.no) else { return false };
        let older = self.older.iter().find(|older| older.number == earlier.form);
        let came_from = |now: &u16| match older.and_then(|older| older.sources.get(usize::from(*now))) {
            Some(Source::Kept(at)) => Some(*at),
            _ => (self.form == earlier.form).then_some(*now),
        };
        index.columns.iter().map(came_from).eq(before.columns.iter().map(|at| Some(*at)))
    }

    pub fn column_no(&self, name: &str) -> Option<u16> {
        self.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name)).map(|i| i as u16)
    }

    pub fn auto_increment_column(&self) -> Option<u16> {
        self.columns.iter().position(|c| c.auto_increment).map(|i| i as u16)
    }

    pub fn is_visible(&self, index: &IndexDef) -> bool {
        !self.invisible_indexes.contains(&index.no)
    }

    /// The part of the index at this place was defined DESC; index 0 is the primary key.
    pub fn descends(&self, index: IndexNo, at: usize) -> bool {
        self.descending.iter().any(|(no, place)| *no == index && usize::from(*place) == at)
    }

    /// An index is gone.
    pub fn forget_index(&mut self, no: IndexNo) {
        self.invisible_indexes.retain(|other| *other != no);
        self.descending.retain(|(other, _)| *other != no);
    }

    pub fn index(&self, no: IndexNo) -> Option<&IndexDef> {
        self.indexes.iter().find(|i| i.no == no)
    }

    /// Key columns of ordered index `no`; number 0 is the primary key.
    pub fn index_columns(&self, no: IndexNo) -> Option<&[u16]> {
        if no.0 == 0 { Some(&self.primary_key) } else { self.index(no).map(|i| i.columns.as_slice()) }
    }

    /// Its rows are the entries of an index, and their key is the first column as it is.
    pub fn is_hidden_index(&self) -> bool {
        self.base_table.is_some()
    }

    /// Its fragments have its keys in their order.
    pub fn has_ordered_keys(&self) -> bool {
        self.base_table.is_none() || self.ordered
    }

    /// Secondary indexes that fragments have.
    pub fn ordered_indexes(&self) -> impl Iterator<Item = &IndexDef> {
        self.indexes.iter().filter(|index| index.list.is_none())
    }

    fn lists(&self) -> impl Iterator<Item = &IndexDef> {
        self.indexes.iter().filter(|index| index.list.is_some())
    }

    /// Most writes of one batch: each may change many entries.
    pub fn writes_max(&self) -> usize {
        match self.lists().count() {
            0 => limits::BATCH_OPS_MAX,
            lists => (list::OPS_MAX / lists).max(1),
        }
    }

    /// Whether the whole primary key places the row, so that one hash serves placement and lookup.
    pub fn distributed_by_whole_key(&self) -> bool {
        usize::from(self.distribution_columns) == self.primary_key.len()
    }

    /// Refuses what the lower layers rely on not to meet. The text says which object is wrong.
    pub fn validate(&self) -> Result<(), (ErrorCode, String)> {
        let bad = |what: String| Err((ErrorCode::InvalidSchema, what));
        if self.columns.is_empty() || self.columns.len() > limits::COLUMNS_MAX {
            return bad(format!("a table has 1 to {} columns, not {}", limits::COLUMNS_MAX, self.columns.len()));
        }
        if self.indexes.len() + self.full_texts.len() + 1 > limits::INDEXES_MAX {
            return bad(format!("a table has at most {} indexes", limits::INDEXES_MAX));
        }
        if self.distribution_columns == 0 || usize::from(self.distribution_columns) > self.primary_key.len() {
            return bad("the distribution key must be a prefix of the primary key".to_owned());
        }
        for (i, column) in self.columns.iter().enumerate() {
            if let Some(twin) = self.columns[..i].iter().find(|c| c.name.eq_ignore_ascii_case(&column.name)) {
                return bad(format!("duplicate column name '{}'", twin.name));
            }
            match column.ty {
                ColumnType::Int { bits: 8 | 16 | 24 | 32 | 64, .. } => {}
                ColumnType::Int { bits, .. } => return bad(format!("no integer of {bits} bits")),
                ColumnType::Decimal { precision, scale, .. }
                    if precision == 0 || precision > 38 || scale > precision.min(30) =>
                {
                    return bad(format!(
                        "column '{}': DECIMAL({precision},{scale}) is outside DECIMAL(1..38, 0..30)",
                        column.name
                    ));
                }
                ColumnType::DateTime { decimals }
                | ColumnType::Timestamp { decimals }
                | ColumnType::Time { decimals }
                    if decimals > 6 =>
                {
                    return bad(format!("column '{}': at most 6 decimals of a second", column.name));
                }
                _ => {}
            }
        }
        if !self.older.iter().all(|older| older.number != self.form && older.fits(&self.columns)) {
            return bad("an older form of the rows does not have the columns of the table".to_owned());
        }
        self.validate_key("PRIMARY", &self.primary_key)?;
        for (i, index) in self.indexes.iter().enumerate() {
            self.validate_key(&index.name, &index.columns)?;
            let is_cut = |(at, &column): (usize, &u16)| {
                let ty = self.columns[usize::from(column)].ty;
                index.prefix(at).is_none() || !matches!(ty, ColumnType::Label { .. }) && ty.fixed_bytes().is_none()
            };
            if index.has_prefixes()
                && (index.prefixes.len() != index.columns.len() || !index.columns.iter().enumerate().all(is_cut))
            {
                return bad(format!("index '{}' takes the beginning of what has none", index.name));
            }
            let is_bytes = |c: u16| matches!(self.columns[usize::from(c)].ty, ColumnType::Blob { .. });
            if index.list.is_some() && !index.list_column().is_some_and(is_bytes) {
                return bad(format!("index '{}' has no column with its keys", index.name));
            }
            if index.no.0 == 0 || self.indexes[..i].iter().any(|other| other.no == index.no) {
                return bad(format!("index '{}' has no number of its own", index.name));
            }
        }
        if self.lists().count() > list::LISTS_MAX {
            return bad(format!("a table has at most {} indexes of lists", list::LISTS_MAX));
        }
        let is_part =
            |(no, at): &(IndexNo, u16)| self.index_columns(*no).is_some_and(|columns| usize::from(*at) < columns.len());
        if !self.descending.iter().all(is_part) {
            return bad("a part of an index descends that is not there".to_owned());
        }
        for key in &self.foreign_keys {
            self.validate_key(&key.name, &key.columns)?;
            if key.parent_columns.len() != key.columns.len() {
                return bad(format!("foreign key '{}' has more columns on one side", key.name));
            }
        }
        self.validate_full_texts()?;
        if let Some(&column) = self.primary_key.iter().find(|&&c| self.columns[usize::from(c)].nullable) {
            return bad(format!("primary key column '{}' may not be NULL", self.columns[usize::from(column)].name));
        }
        Ok(())
    }

    pub(crate) fn validate_key(&self, name: &str, columns: &[u16]) -> Result<(), (ErrorCode, String)> {
        if columns.is_empty() || columns.len() > limits::KEY_COLUMNS_MAX {
            return Err((
                ErrorCode::InvalidSchema,
                format!("key '{name}' has {} columns; 1 to 32 are allowed", columns.len()),
            ));
        }
        for (i, &column) in columns.iter().enumerate() {
            if usize::from(column) >= self.columns.len() || columns[..i].contains(&column) {
                return Err((
                    ErrorCode::InvalidSchema,
                    format!("key '{name}' names a column twice or one that does not exist"),
                ));
            }
        }
        Ok(())
    }
}
