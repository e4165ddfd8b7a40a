//! Wire form of a table's definition, and its conversion; the domain type is [`apus_types::TableSchema`].

use apus_types::{
    Column, ColumnType, FullText, IndexDef, IndexNo, IndexState, TableId, TableSchema,
    collate::Collation,
    form::{OlderForm, Source},
    rules::{CheckDef, Enforced, Generated, TriggerDef},
    schema::{DefaultValue, Durability, Form},
};
use prost::Message;

use crate::{
    codec::DecodeError,
    foreign_key::{self, ForeignKeyMessage},
};

#[derive(Clone, PartialEq, Message)]
pub struct ColumnMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    /// See `type_to_wire`.
    #[prost(uint32, tag = "2")]
    pub type_code: u32,
    /// Bits, precision, length or decimals.
    #[prost(uint32, tag = "3")]
    pub size: u32,
    #[prost(uint32, tag = "4")]
    pub scale: u32,
    #[prost(bool, tag = "5")]
    pub unsigned: bool,
    /// MySQL collation id, 0 where none applies.
    #[prost(uint32, tag = "6")]
    pub collation: u32,
    #[prost(bool, tag = "7")]
    pub nullable: bool,
    /// 0 none, 1 NULL, 2 literal, 3 current timestamp, 4 expression.
    #[prost(uint32, tag = "8")]
    pub default_kind: u32,
    #[prost(string, tag = "9")]
    pub default_text: String,
    #[prost(bool, tag = "10")]
    pub auto_increment: bool,
    #[prost(bool, tag = "11")]
    pub on_update_now: bool,
    #[prost(string, tag = "12")]
    pub comment: String,
    #[prost(string, tag = "13")]
    pub declared: String,
    /// 0 as the type says, 1 ENUM, 2 SET, 3 JSON, 4 BIT; see [`Form`].
    #[prost(uint32, tag = "14")]
    pub form: u32,
    /// The collation of labels, the length of a BIT.
    #[prost(uint32, tag = "15")]
    pub label_collation: u32,
    #[prost(string, repeated, tag = "16")]
    pub labels: Vec<String>,
    /// 0 not generated, 1 virtual, 2 stored.
    #[prost(uint32, tag = "17")]
    pub generated: u32,
    #[prost(string, tag = "18")]
    pub generated_text: String,
    #[prost(bool, tag = "19")]
    pub invisible: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct IndexMessage {
    #[prost(uint32, tag = "1")]
    pub no: u32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint32, repeated, tag = "3")]
    pub columns: Vec<u32>,
    #[prost(bool, tag = "4")]
    pub unique: bool,
    #[prost(uint32, tag = "5")]
    pub hidden_table: u32,
    #[prost(bool, tag = "6")]
    pub building: bool,
    /// See [`IndexDef::prefixes`].
    #[prost(uint32, repeated, tag = "7")]
    pub prefixes: Vec<u32>,
    #[prost(bool, tag = "8")]
    pub invisible: bool,
    /// Places of parts that were defined DESC, see [`TableSchema::descending`].
    #[prost(uint32, repeated, tag = "9")]
    pub descending: Vec<u32>,
    /// The place of the column that is a list of keys, counted from 1; 0: there is none.
    #[prost(uint32, tag = "10")]
    pub list: u32,
}

/// What rows of an older form have in a column of today; see [`Source`].
#[derive(Clone, PartialEq, Message)]
pub struct SourceMessage {
    /// The column of that form, counted from 1; 0: it has none.
    #[prost(uint32, tag = "1")]
    pub kept: u32,
    /// Otherwise the stored bytes; absent: NULL.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub given: Option<Vec<u8>>,
}

/// See [`OlderForm`].
#[derive(Clone, PartialEq, Message)]
pub struct FormMessage {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Types only.
    #[prost(message, repeated, tag = "2")]
    pub columns: Vec<ColumnMessage>,
    #[prost(message, repeated, tag = "3")]
    pub sources: Vec<SourceMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TableMessage {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(uint32, tag = "2")]
    pub version: u32,
    #[prost(string, tag = "3")]
    pub database: String,
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub columns: Vec<ColumnMessage>,
    #[prost(uint32, repeated, tag = "6")]
    pub primary_key: Vec<u32>,
    #[prost(uint32, tag = "7")]
    pub distribution_columns: u32,
    #[prost(bool, tag = "8")]
    pub hidden_key: bool,
    #[prost(message, repeated, tag = "9")]
    pub indexes: Vec<IndexMessage>,
    #[prost(uint32, tag = "10")]
    pub base_table: u32,
    #[prost(uint32, tag = "11")]
    pub collation: u32,
    #[prost(string, tag = "12")]
    pub comment: String,
    #[prost(string, tag = "13")]
    pub engine: String,
    /// 0 replicated, 1 disk, 2 none; see [`Durability`].
    #[prost(uint32, tag = "14")]
    pub durability: u32,
    /// Of the rows that are written, and of those that may be there.
    #[prost(uint32, tag = "15")]
    pub form: u32,
    #[prost(message, repeated, tag = "16")]
    pub older: Vec<FormMessage>,
    #[prost(message, repeated, tag = "17")]
    pub foreign_keys: Vec<ForeignKeyMessage>,
    #[prost(message, repeated, tag = "18")]
    pub checks: Vec<CheckMessage>,
    #[prost(message, repeated, tag = "19")]
    pub full_texts: Vec<FullTextMessage>,
    #[prost(message, repeated, tag = "20")]
    pub triggers: Vec<TriggerMessage>,
    /// Places of the primary key's parts that were defined DESC.
    #[prost(uint32, repeated, tag = "21")]
    pub descending: Vec<u32>,
    /// See [`TableSchema::ordered`].
    #[prost(bool, tag = "22")]
    pub ordered: bool,
}

/// See [`TriggerDef`].
#[derive(Clone, PartialEq, Message)]
pub struct TriggerMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub text: String,
}

impl From<&TriggerDef> for TriggerMessage {
    fn from(trigger: &TriggerDef) -> TriggerMessage {
        TriggerMessage { name: trigger.name.clone(), text: trigger.text.clone() }
    }
}

impl From<&TriggerMessage> for TriggerDef {
    fn from(m: &TriggerMessage) -> TriggerDef {
        TriggerDef { name: m.name.clone(), text: m.text.clone() }
    }
}

/// See [`FullText`].
#[derive(Clone, PartialEq, Message)]
pub struct FullTextMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, repeated, tag = "2")]
    pub columns: Vec<u32>,
    #[prost(string, tag = "3")]
    pub comment: String,
    #[prost(bool, tag = "4")]
    pub invisible: bool,
}

impl From<&FullText> for FullTextMessage {
    fn from(index: &FullText) -> FullTextMessage {
        FullTextMessage {
            name: index.name.clone(),
            columns: index.columns.iter().map(|&c| u32::from(c)).collect(),
            comment: index.comment.clone(),
            invisible: index.invisible,
        }
    }
}

impl TryFrom<&FullTextMessage> for FullText {
    type Error = DecodeError;
    fn try_from(m: &FullTextMessage) -> Result<FullText, DecodeError> {
        let columns = numbers(&m.columns)?;
        Ok(FullText { name: m.name.clone(), columns, comment: m.comment.clone(), invisible: m.invisible })
    }
}

/// See [`CheckDef`].
#[derive(Clone, PartialEq, Message)]
pub struct CheckMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub text: String,
    /// 0 no, 1 yes, 2 rows are looked through.
    #[prost(uint32, tag = "3")]
    pub enforced: u32,
}

impl From<&CheckDef> for CheckMessage {
    fn from(check: &CheckDef) -> CheckMessage {
        let enforced = match check.enforced {
            Enforced::No => 0,
            Enforced::Yes => 1,
            Enforced::Validating => 2,
        };
        CheckMessage { name: check.name.clone(), text: check.text.clone(), enforced }
    }
}

impl TryFrom<&CheckMessage> for CheckDef {
    type Error = DecodeError;
    fn try_from(m: &CheckMessage) -> Result<CheckDef, DecodeError> {
        let enforced = match m.enforced {
            0 => Enforced::No,
            1 => Enforced::Yes,
            2 => Enforced::Validating,
            _ => return Err(DecodeError),
        };
        Ok(CheckDef { name: m.name.clone(), text: m.text.clone(), enforced })
    }
}

fn type_to_wire(ty: ColumnType) -> (u32, u32, u32, bool, u32) {
    let text = |code, length: u32, collation: Collation| (code, length, 0, false, u32::from(collation.id()));
    match ty {
        ColumnType::Int { bits, unsigned } => (1, u32::from(bits), 0, unsigned, 0),
        ColumnType::Decimal { precision, scale, unsigned } => (2, u32::from(precision), u32::from(scale), unsigned, 0),
        ColumnType::Float => (3, 0, 0, false, 0),
        ColumnType::Double => (4, 0, 0, false, 0),
        ColumnType::Char { length, collation } => text(5, u32::from(length), collation),
        ColumnType::VarChar { length, collation } => text(6, u32::from(length), collation),
        ColumnType::Binary { length } => (7, u32::from(length), 0, false, 0),
        ColumnType::VarBinary { length } => (8, u32::from(length), 0, false, 0),
        ColumnType::Text { length, collation } => text(9, length, collation),
        ColumnType::Blob { length } => (10, length, 0, false, 0),
        ColumnType::Date => (11, 0, 0, false, 0),
        ColumnType::DateTime { decimals } => (12, u32::from(decimals), 0, false, 0),
        ColumnType::Timestamp { decimals } => (13, u32::from(decimals), 0, false, 0),
        ColumnType::Time { decimals } => (14, u32::from(decimals), 0, false, 0),
        ColumnType::Year => (15, 0, 0, false, 0),
        ColumnType::Label { .. } | ColumnType::Json | ColumnType::Bit { .. } => type_to_wire(ty.stored()),
    }
}

fn form_to_wire(c: &Column) -> (u32, u32, Vec<String>) {
    let (is_set, collation, labels) = match (c.ty, &c.form) {
        (ColumnType::Label { is_set, collation, labels, .. }, _) => (is_set, collation, &labels.0.0),
        (_, Form::Labels { is_set, collation, labels }) => (*is_set, *collation, labels),
        (ColumnType::Json, _) | (_, Form::Json) => return (3, 0, Vec::new()),
        (ColumnType::Bit { length }, _) | (_, &Form::Bit { length }) => return (4, u32::from(length), Vec::new()),
        (_, Form::Plain) => return (0, 0, Vec::new()),
    };
    (1 + u32::from(is_set), u32::from(collation.id()), labels.clone())
}

fn form_from_wire(m: &ColumnMessage) -> Result<Form, DecodeError> {
    let bits = match m.type_code {
        1 if m.unsigned => m.size,
        _ => 0,
    };
    let form = match m.form {
        0 => return Ok(Form::Plain),
        1 | 2 => {
            let collation = u16::try_from(m.label_collation).ok().and_then(Collation::from_id).ok_or(DecodeError)?;
            Form::Labels { is_set: m.form == 2, collation, labels: m.labels.clone() }
        }
        3 if m.type_code == 10 => Form::Json,
        4 => Form::Bit { length: u8::try_from(m.label_collation).map_err(|_| DecodeError)? },
        _ => return Err(DecodeError),
    };
    let fits = match &form {
        Form::Labels { is_set: false, labels, .. } => bits <= 16 && labels.len() >> bits == 0,
        Form::Labels { labels, .. } => labels.len() <= bits as usize,
        Form::Bit { length } => *length > 0 && u32::from(*length) <= bits,
        Form::Plain | Form::Json => true,
    };
    if fits { Ok(form) } else { Err(DecodeError) }
}

fn type_from_wire(m: &ColumnMessage) -> Result<ColumnType, DecodeError> {
    let small = |n: u32| u8::try_from(n).map_err(|_| DecodeError);
    let short = |n: u32| u16::try_from(n).map_err(|_| DecodeError);
    let collation = || u16::try_from(m.collation).ok().and_then(Collation::from_id).ok_or(DecodeError);
    Ok(match m.type_code {
        1 => ColumnType::Int { bits: small(m.size)?, unsigned: m.unsigned },
        2 => ColumnType::Decimal { precision: small(m.size)?, scale: small(m.scale)?, unsigned: m.unsigned },
        3 => ColumnType::Float,
        4 => ColumnType::Double,
        5 => ColumnType::Char { length: short(m.size)?, collation: collation()? },
        6 => ColumnType::VarChar { length: short(m.size)?, collation: collation()? },
        7 => ColumnType::Binary { length: short(m.size)? },
        8 => ColumnType::VarBinary { length: short(m.size)? },
        9 => ColumnType::Text { length: m.size, collation: collation()? },
        10 => ColumnType::Blob { length: m.size },
        11 => ColumnType::Date,
        12 => ColumnType::DateTime { decimals: small(m.size)? },
        13 => ColumnType::Timestamp { decimals: small(m.size)? },
        14 => ColumnType::Time { decimals: small(m.size)? },
        15 => ColumnType::Year,
        _ => return Err(DecodeError),
    })
}

impl From<&TableSchema> for TableMessage {
    fn from(t: &TableSchema) -> TableMessage {
        TableMessage {
            id: t.id.0,
            version: t.version,
            database: t.database.clone(),
            name: t.name.clone(),
            columns: t.columns.iter().map(column_to_wire).collect(),
            primary_key: t.primary_key.iter().map(|&c| u32::from(c)).collect(),
            distribution_columns: u32::from(t.distribution_columns),
            hidden_key: t.hidden_key,
            indexes: t
                .indexes
                .iter()
                .map(|i| IndexMessage {
                    invisible: !t.is_visible(i),
                    descending: descending_to_wire(t, i.no),
                    ..index_to_wire(i)
                })
                .collect(),
            base_table: t.base_table.map_or(0, |b| b.0),
            ordered: t.ordered,
            collation: u32::from(t.collation.id()),
            comment: t.comment.clone(),
            engine: t.engine.clone(),
            durability: match t.durability {
                Durability::Replicated => 0,
                Durability::Disk => 1,
                Durability::None => 2,
            },
            form: u32::from(t.form),
            older: t.older.iter().map(older_to_wire).collect(),
            foreign_keys: foreign_key::to_wire(&t.foreign_keys, t.held),
            checks: t.checks.iter().map(CheckMessage::from).collect(),
            full_texts: t.full_texts.iter().map(FullTextMessage::from).collect(),
            triggers: t.triggers.iter().map(TriggerMessage::from).collect(),
            descending: descending_to_wire(t, IndexNo(0)),
        }
    }
}

fn descending_to_wire(t: &TableSchema, index: IndexNo) -> Vec<u32> {
    t.descending.iter().filter(|(no, _)| *no == index).map(|(_, at)| u32::from(*at)).collect()
}

impl From<&Source> for SourceMessage {
    fn from(source: &Source) -> SourceMessage {
        match source {
            Source::Kept(at) => SourceMessage { kept: u32::from(*at) + 1, given: None },
            Source::Given(bytes) => SourceMessage { kept: 0, given: Some(bytes.clone()) },
            Source::Null => SourceMessage::default(),
        }
    }
}

impl TryFrom<&SourceMessage> for Source {
    type Error = DecodeError;
    fn try_from(m: &SourceMessage) -> Result<Source, DecodeError> {
        Ok(match (m.kept.checked_sub(1), &m.given) {
            (Some(at), None) => Source::Kept(u16::try_from(at).map_err(|_| DecodeError)?),
            (None, Some(bytes)) => Source::Given(bytes.clone()),
            (None, None) => Source::Null,
            (Some(_), Some(_)) => return Err(DecodeError),
        })
    }
}

fn older_to_wire(form: &OlderForm) -> FormMessage {
    let column = |ty: &ColumnType| {
        let (type_code, size, scale, unsigned, collation) = type_to_wire(*ty);
        ColumnMessage { type_code, size, scale, unsigned, collation, ..ColumnMessage::default() }
    };
    FormMessage {
        number: u32::from(form.number),
        columns: form.types.iter().map(column).collect(),
        sources: form.sources.iter().map(SourceMessage::from).collect(),
    }
}

fn older_from_wire(m: &FormMessage) -> Result<OlderForm, DecodeError> {
    Ok(OlderForm {
        number: u8::try_from(m.number).map_err(|_| DecodeError)?,
        types: m.columns.iter().map(type_from_wire).collect::<Result<_, _>>()?,
        sources: m.sources.iter().map(Source::try_from).collect::<Result<_, _>>()?,
    })
}

pub fn column_to_wire(c: &Column) -> ColumnMessage {
    let (type_code, size, scale, unsigned, collation) = type_to_wire(c.ty);
    let (form, label_collation, labels) = form_to_wire(c);
    let (default_kind, default_text) = match &c.default {
        DefaultValue::None => (0, String::new()),
        DefaultValue::Null => (1, String::new()),
        DefaultValue::Literal(text) => (2, text.clone()),
        DefaultValue::CurrentTimestamp => (3, String::new()),
        DefaultValue::Expression(text) => (4, text.clone()),
    };
    ColumnMessage {
        name: c.name.clone(),
        type_code,
        size,
        scale,
        unsigned,
        collation,
        nullable: c.nullable,
        default_kind,
        default_text,
        auto_increment: c.auto_increment,
        on_update_now: c.on_update_now,
        comment: c.comment.clone(),
        declared: c.declared.clone(),
        form,
        label_collation,
        labels,
        generated: c.generated.as_ref().map_or(0, |g| 1 + u32::from(g.stored)),
        generated_text: c.generated.as_ref().map_or_else(String::new, |g| g.text.clone()),
        invisible: c.invisible,
    }
}

fn index_to_wire(i: &IndexDef) -> IndexMessage {
    IndexMessage {
        no: u32::from(i.no.0),
        name: i.name.clone(),
        columns: i.columns.iter().map(|&c| u32::from(c)).collect(),
        unique: i.unique,
        hidden_table: i.hidden_table.map_or(0, |t| t.0),
        building: i.state == IndexState::Building,
        prefixes: i.prefixes.clone(),
        invisible: false,
        descending: Vec::new(),
        list: i.list.map_or(0, |at| u32::from(at) + 1),
    }
}

impl TryFrom<&TableMessage> for TableSchema {
    type Error = DecodeError;
    /// Decodes and validates.
    fn try_from(m: &TableMessage) -> Result<TableSchema, DecodeError> {
        let columns = m.columns.iter().map(column_from_wire).collect::<Result<Vec<_>, _>>()?;
        let mut table = TableSchema::new(&m.database, &m.name, columns, numbers(&m.primary_key)?);
        table.id = TableId(m.id);
        table.version = m.version;
        table.distribution_columns = u16::try_from(m.distribution_columns).map_err(|_| DecodeError)?;
        table.hidden_key = m.hidden_key;
        table.indexes = m.indexes.iter().map(index_from_wire).collect::<Result<Vec<_>, _>>()?;
        let invisible = m.indexes.iter().zip(&table.indexes).filter(|(m, _)| m.invisible);
        table.invisible_indexes = invisible.map(|(_, index)| index.no).collect();
        let of_indexes = m.indexes.iter().zip(&table.indexes).map(|(m, index)| (index.no, &m.descending));
        for (no, descending) in [(IndexNo(0), &m.descending)].into_iter().chain(of_indexes) {
            table.descending.extend(numbers(descending)?.into_iter().map(|at| (no, at)));
        }
        table.base_table = (m.base_table != 0).then_some(TableId(m.base_table));
        table.ordered = m.ordered;
        table.collation = u16::try_from(m.collation).ok().and_then(Collation::from_id).ok_or(DecodeError)?;
        table.comment = m.comment.clone();
        table.engine = m.engine.clone();
        table.durability = match m.durability {
            0 => Durability::Replicated,
            1 => Durability::Disk,
            2 => Durability::None,
            _ => return Err(DecodeError),
        };
        table.form = u8::try_from(m.form).map_err(|_| DecodeError)?;
        table.older = m.older.iter().map(older_from_wire).collect::<Result<_, _>>()?;
        (table.foreign_keys, table.held) = foreign_key::from_wire(&m.foreign_keys)?;
        table.checks = m.checks.iter().map(CheckDef::try_from).collect::<Result<_, _>>()?;
        table.full_texts = m.full_texts.iter().map(FullText::try_from).collect::<Result<_, _>>()?;
        table.triggers = m.triggers.iter().map(TriggerDef::from).collect();
        table.refresh();
        table.validate().map_err(|_| DecodeError)?;
        Ok(table)
    }
}

fn numbers(list: &[u32]) -> Result<Vec<u16>, DecodeError> {
    list.iter().map(|&n| u16::try_from(n).map_err(|_| DecodeError)).collect()
}

/// # Errors
/// A type, a default or a form that nobody knows.
pub fn column_from_wire(m: &ColumnMessage) -> Result<Column, DecodeError> {
    Ok(Column {
        name: m.name.clone(),
        ty: type_from_wire(m)?,
        nullable: m.nullable,
        default: match m.default_kind {
            0 => DefaultValue::None,
            1 => DefaultValue::Null,
            2 => DefaultValue::Literal(m.default_text.clone()),
            3 => DefaultValue::CurrentTimestamp,
            4 => DefaultValue::Expression(m.default_text.clone()),
            _ => return Err(DecodeError),
        },
        auto_increment: m.auto_increment,
        on_update_now: m.on_update_now,
        comment: m.comment.clone(),
        declared: m.declared.clone(),
        form: form_from_wire(m)?,
        generated: match m.generated {
            0 => None,
            1 | 2 => Some(Generated { text: m.generated_text.clone(), stored: m.generated == 2 }),
            _ => return Err(DecodeError),
        },
        invisible: m.invisible,
    })
}

fn index_from_wire(m: &IndexMessage) -> Result<IndexDef, DecodeError> {
    Ok(IndexDef {
        no: IndexNo(u16::try_from(m.no).map_err(|_| DecodeError)?),
        name: m.name.clone(),
        columns: numbers(&m.columns)?,
        prefixes: m.prefixes.clone(),
        unique: m.unique,
        list: m.list.checked_sub(1).map(u16::try_from).transpose().map_err(|_| DecodeError)?,
        hidden_table: (m.hidden_table != 0).then_some(TableId(m.hidden_table)),
        state: if m.building { IndexState::Building } else { IndexState::Ready },
    })
}
