//! The rows of INSERT, REPLACE and LOAD DATA: each value on its way into its column, defaults, values of AUTO_INCREMENT.
//!
//! A value that strict mode refuses is an error, or, with IGNORE and without strict mode, stored as well as it can be with a warning ([`Making::converted`]). What a
//! file has in place of values, NULL and nothing at all, follows rules of its own ([`Making::in_place`]).

use std::pin::pin;

use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value, schema::DefaultValue};

use super::{Cluster, change, rules};
use crate::{
    catalog::auto_increment::Refusal,
    errors,
    expr::{
        Context, Env, Expr, Func,
        assign::{self, Assign},
        without_row,
    },
    plan::{
        Insert,
        dml::insert::{OnDuplicate, Source},
    },
    program::trigger::{
        Event,
        fire::{Fired, Rows},
    },
    session::{Done, Fail, Session, buffers::Scratch},
    spill::byte_strings::Strings,
    value::{
        datum::{Datum, recycle},
        enum_set,
    },
    variables::Step,
    wire::SqlError,
};

/// The values of AUTO_INCREMENT of one statement.
pub struct Numbers {
    /// Reserved for this statement: the next one and how many.
    next: u64,
    left: u64,
    step: Step,
    /// The variable insert_id, until it is used.
    forced: Option<u64>,
    /// The highest explicit value so far, and the highest that insert_id gave.
    pub explicit: Option<u64>,
    given: Option<u64>,
}

impl Numbers {
    pub fn new(session: &Session) -> Numbers {
        let variables = &session.env.variables;
        let forced = Some(variables.insert_id).filter(|n| *n != 0);
        Numbers { next: 0, left: 0, step: variables.auto_increment, forced, explicit: None, given: None }
    }
    /// Whatever the variable insert_id says.
    pub fn unforced(session: &Session) -> Numbers {
        Numbers { forced: None, ..Numbers::new(session) }
    }
    /// The rows are made again, with other values; the explicit ones stay.
    pub fn begin_again(&mut self) {
        self.left = 0;
    }
    /// Of the primary key of a table without one.
    pub fn hidden() -> Numbers {
        Numbers { next: 0, left: 0, step: Step { increment: 1, offset: 1 }, forced: None, explicit: None, given: None }
    }
    /// The counter must be above it.
    pub fn highest(&self) -> Option<u64> {
        self.explicit.max(self.given)
    }

    /// A value for the next row; `rows` are left, each of which may want one.
    pub async fn generate(&mut self, cluster: Cluster<'_>, schema: &TableSchema, column: u16, rows: u64) -> Done<u64> {
        let counters = cluster.catalog.counters()?;
        if let Some(first) = self.forced.take() {
            (self.next, self.left) = (first, rows);
            self.given = first.checked_add(self.step.increment.saturating_mul(rows - 1));
        }
        if self.explicit.is_some_and(|explicit| explicit >= self.next) {
            self.left = 0; // what is generated behind an explicit value must lie above it
        }
        if self.left == 0 {
            if let Some(highest) = self.highest() {
                cluster.auto_increment.raise(cluster.client, counters, schema, column, highest).await?;
            }
            let taken = cluster.auto_increment.take(cluster.client, counters, schema, column, rows, self.step).await;
            self.next = taken.map_err(|refusal| match refusal {
                Refusal::Client(e) => Fail::Client(e),
                Refusal::Exhausted => errors::no_auto_increment().into(),
            })?;
            self.left = rows;
        }
        let value = self.next;
        self.next = value.saturating_add(self.step.increment);
        self.left -= 1;
        Ok(value)
    }
}

/// Where the value of a column comes from.
pub enum Given<'a> {
    Default,
    Expr(&'a Expr),
    Value(Datum<'a>),
    /// Of a line of a file that ends before it.
    Missing,
    /// What a file says is NULL.
    Null,
    /// Not among the columns of a file.
    Unnamed,
    /// As the column stores it.
    Made(Datum<'a>),
}

/// How the values of a row are made.
pub struct Making<'a> {
    session: &'a Session,
    plan: &'a Insert,
    params: &'a [Datum<'a>],
    assign: Assign<'a>,
    /// What strict mode refuses is stored as well as it can be.
    lenient: bool,
    /// BEFORE triggers have had their say.
    is_triggered: bool,
}

impl<'a> Making<'a> {
    pub fn env(&self) -> &'a Env {
        &self.session.env
    }
    /// Of the row, in warnings.
    pub fn number(&self) -> usize {
        self.assign.row
    }
    /// Of the row of this number, which counts in warnings.
    pub fn new(session: &'a Session, plan: &'a Insert, params: &'a [Datum<'a>], row: usize) -> Making<'a> {
        let strict = session.env.variables.strict;
        let assign = Assign::of(&session.env, &plan.table.schema.name, row, strict);
        let lenient = !assign.strict || plan.on_duplicate == OnDuplicate::Ignore;
        Making { session, plan, params, assign, lenient, is_triggered: false }
    }

    fn context(&self) -> Context<'a> {
        without_row(self.params, &self.session.env)
    }

    /// The value of column `i` as it is stored, NULL also where that may not be; what is to be warned of is put into `refused`.
    pub fn value(&self, i: usize, source: Given<'a>, refused: &mut Vec<SqlError>) -> Done<Datum<'a>> {
        let c = &self.plan.table.schema.columns[i];
        let value = match source {
            Given::Made(value) => return Ok(value),
            Given::Missing | Given::Null => return self.in_place(c, matches!(source, Given::Missing), refused),
            Given::Default | Given::Unnamed if c.auto_increment => Datum::Null,
            Given::Default | Given::Unnamed => match self.plan.defaults.get(i) {
                Some(Ok(e)) => {
                    let value = change::truncate_now(e.eval(&self.context())?, c.ty);
                    if !self.lenient
                        && let Some(fault) = self.session.env.fault()
                    {
                        return Err(fault.into());
                    }
                    value
                }
                Some(Err(_)) if matches!(source, Given::Unnamed) => return Ok(self.zero(c)?),
                Some(Err(e)) if !self.lenient => return Err(e.clone().into()),
                Some(Err(e)) => {
                    refused.push(e.clone());
                    assign::implicit_default(c.ty)
                }
                None => assign::implicit_default(c.ty),
            },
            Given::Expr(e) => {
                let value = e.eval(&self.context())?;
                if !self.lenient
                    && let Some(fault) = self.session.env.fault()
                {
                    return Err(fault.into());
                }
                value
            }
            Given::Value(d) => d,
        };
        Ok(self.converted(c, value, refused)?)
    }

    /// An error, or a warning where what strict mode refuses is stored.
    fn refuse(&self, e: SqlError, refused: &mut Vec<SqlError>) -> Done<()> {
        if !self.lenient {
            return Err(e.into());
        }
        refused.push(e);
        Ok(())
    }

    /// The row with the value of a column that is computed from the others.
    pub fn computed(
        &self,
        column: u16,
        e: &Expr,
        row: &[u8],
        many: bool,
        refused: &mut Vec<SqlError>,
    ) -> Done<Vec<u8>> {
        let schema = &self.plan.table.schema;
        let c = &schema.columns[usize::from(column)];
        let cx = Context { layout: schema.layout(), row, params: &[], ..self.context() };
        let value = e.eval(&cx)?.into_owned();
        if !self.lenient
            && let Some(fault) = self.session.env.fault()
        {
            return Err(fault.into());
        }
        refused.extend(self.session.env.take_notes());
        let mut value = self.converted(c, change::truncate_now(value, c.ty), refused)?;
        if value.is_null() && !c.nullable {
            value = self.in_place_of_null(c, many, refused)?;
        }
        Ok(assign::replace(schema, row, column, &value)?)
    }

    /// What is stored in place of NULL in a column that is NOT NULL. `many`: the statement has several rows.
    fn in_place_of_null(&self, c: &Column, many: bool, refused: &mut Vec<SqlError>) -> Done<Datum<'a>> {
        let e = errors::null_not_allowed(&c.name);
        let many = many && (self.is_triggered || matches!(&self.plan.source, Source::Values(_)));
        if self.plan.on_duplicate != OnDuplicate::Ignore && (self.assign.strict || !many) {
            return Err(e.into());
        }
        refused.push(e);
        Ok(match enum_set::in_place_of_null(c.ty) {
            Some(value) => value,
            None => assign::assign(c, assign::implicit_default(c.ty), self.assign)?,
        })
    }

    /// A value as the column stores it.
    pub fn converted(&self, c: &Column, value: Datum<'a>, refused: &mut Vec<SqlError>) -> errors::Result<Datum<'a>> {
        if !self.lenient {
            return assign::assign(c, value, self.assign);
        }
        assign::assign_or_warn(c, value, self.assign, refused)
    }

    /// What is stored where a file has NULL, or nothing.
    fn in_place(&self, c: &Column, missing: bool, refused: &mut Vec<SqlError>) -> Done<Datum<'a>> {
        let row = self.assign.row;
        let has_null = match &c.default {
            DefaultValue::Literal(_) => false,
            DefaultValue::None | DefaultValue::Null | DefaultValue::CurrentTimestamp | DefaultValue::Expression(_) => {
                c.nullable
            }
        };
        let is_moment = matches!(c.ty, ColumnType::Timestamp { .. }) && !c.nullable;
        let e = match missing {
            true => errors::too_few_fields(row),
            false if c.nullable || c.auto_increment || is_moment => {
                return if is_moment { self.now(c) } else { Ok(Datum::Null) };
            }
            false => errors::null_in_file(&c.name, row),
        };
        if !self.lenient {
            return Err(e.into());
        }
        refused.push(e);
        match missing && (has_null || c.auto_increment) {
            true => Ok(Datum::Null),
            false if missing && is_moment => self.now(c),
            false => Ok(self.zero(c)?),
        }
    }

    /// The value of a column's type that has all bits zero.
    pub fn zero(&self, c: &Column) -> errors::Result<Datum<'a>> {
        match enum_set::in_place_of_null(c.ty) {
            Some(value) => Ok(value),
            None => assign::assign_leniently(c, assign::implicit_default(c.ty), self.assign),
        }
    }

    fn now(&self, c: &Column) -> Done<Datum<'a>> {
        let now = Expr::Call(Func::Now, vec![Expr::Const(Datum::Int(6))], Default::default());
        let now = change::truncate_now(now.eval(&self.context())?.into_owned(), c.ty);
        Ok(assign::assign(c, now, self.assign)?)
    }
}

/// Makes one row, number `row` of `count`, and appends it to `s.images`; returns its value of AUTO_INCREMENT if that was generated,
/// else 0. `given` says of each column, by its number, what it gets.
#[allow(clippy::too_many_arguments)]
pub async fn one_row<'g: 'a, 'a>(
    cluster: Cluster<'_>,
    session: &'a Session,
    s: &mut Scratch,
    plan: &'a Insert,
    params: &'a [Datum<'a>],
    given: impl Fn(usize) -> Given<'g>,
    (row, count): (usize, usize),
    (numbers, hidden): (&mut Numbers, &mut Numbers),
) -> Done<u64> {
    let schema = &plan.table.schema;
    let making = Making::new(session, plan, params, row);
    let assign = making.assign;
    let mut generated = 0;
    let left = (count - row + 1) as u64;
    let mut values: Vec<Datum<'_>> = recycle(std::mem::take(&mut s.cells));
    let (rules, mut late) = (plan.table.rules()?, Vec::new());
    for (i, c) in schema.columns.iter().enumerate() {
        let source = given(i);
        if rules.is_some_and(|rules| rules.is_late(i as u16, &source)) {
            if matches!(source, Given::Missing) {
                making.refuse(errors::too_few_fields(row), &mut s.refused)?;
            }
            late.push(i as u16);
            values.push(Datum::Null);
            continue;
        }
        let from_default = matches!(source, Given::Default | Given::Unnamed);
        let value = making.value(i, source, &mut s.refused)?;
        if c.auto_increment {
            let wanted = match &value {
                Datum::Null => true,
                Datum::Int(0) | Datum::UInt(0) => from_default || !session.env.variables.no_auto_value_on_zero,
                _ => false,
            };
            if wanted {
                let of_column = if c.name.starts_with('#') { &mut *hidden } else { &mut *numbers };
                // As InnoDB: at the end of the type it is tried to insert the greatest value.
                let n = of_column.generate(cluster, schema, i as u16, left).await?.min(greatest(c.ty));
                if !c.name.starts_with('#') {
                    generated = n;
                }
                values.push(assign::assign(c, Datum::UInt(n), assign)?);
                continue;
            }
            let explicit = value.number().and_then(|n| u64::try_from(n.to_i128()).ok());
            numbers.explicit = numbers.explicit.max(explicit);
        }
        if value.is_null() && !c.nullable {
            values.push(making.in_place_of_null(c, count > 1, &mut s.refused)?);
            continue;
        }
        values.push(value);
    }
    encode_row(schema, &values, &mut s.images)?;
    s.cells = recycle(values);
    if !late.is_empty() {
        rules::complete(&making, &plan.table, &late, count > 1, s)?;
    }
    Ok(generated)
}

/// What became of a row that a statement names.
pub enum Made {
    /// It is the last of `s.images`; its value of AUTO_INCREMENT if that was generated, else 0.
    Row(u64),
    /// IGNORE leaves it out.
    Nothing,
}

/// As [`one_row`], with the BEFORE triggers of the table: they see the row as far as it is given, and what they leave is completed.
#[allow(clippy::too_many_arguments)]
pub async fn triggered_row<'g>(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Insert,
    params: &[Datum<'_>],
    given: impl Fn(usize) -> Given<'g>,
    (row, count): (usize, usize),
    (numbers, hidden): (&mut Numbers, &mut Numbers),
) -> Done<Made> {
    let table = &plan.table;
    if table.triggers().is_none_or(|triggers| triggers.of(Event::Insert, true).next().is_none()) {
        let made = pin!(one_row(cluster, session, s, plan, params, given, (row, count), (numbers, hidden))).await?;
        return Ok(Made::Row(made));
    }
    draft(&Making::new(session, plan, params, row), &given, count > 1, s)?;
    let image = s.images.get(s.images.len() - 1).unwrap_or(&[]).to_vec();
    s.images.pop();
    let rows = Rows { old: None, new: Some(&image) };
    let fired = cluster.engine.fire_before(session, table, Event::Insert, rows).await?;
    let Some(Fired { row: mut image, touched }) = fired else { return Err(errors::internal("no new row").into()) };
    let schema = &table.schema;
    let is_null = |image: &[u8], i: usize| schema.layout().is_null(image, i as u16);
    for (i, c) in schema.columns.iter().enumerate() {
        let is_late = c.generated.is_some() || c.auto_increment;
        if touched.contains(&(i as u16)) && !c.nullable && !is_late && is_null(&image, i) {
            return match plan.on_duplicate {
                OnDuplicate::Ignore => Ok(Made::Nothing),
                _ => Err(errors::null_not_allowed(&c.name).into()),
            };
        }
    }
    let making = Making { is_triggered: true, ..Making::new(session, plan, params, row) };
    let many = count > 1 || matches!(plan.source, Source::Select(_));
    let mut generated = 0;
    for (i, c) in schema.columns.iter().enumerate() {
        if c.auto_increment {
            let source = given(i);
            let from_default = matches!(source, Given::Default | Given::Unnamed) && !touched.contains(&(i as u16));
            let wanted = match schema.layout().value(&image, i as u16) {
                Value::Null => true,
                Value::Int(0) | Value::UInt(0) => from_default || !session.env.variables.no_auto_value_on_zero,
                value => {
                    let explicit = match value {
                        Value::UInt(n) => Some(n),
                        Value::Int(n) => u64::try_from(n).ok(),
                        _ => None,
                    };
                    numbers.explicit = numbers.explicit.max(explicit);
                    false
                }
            };
            if wanted {
                let of_column = if c.name.starts_with('#') { &mut *hidden } else { &mut *numbers };
                let left = (count - row + 1) as u64;
                let n = of_column.generate(cluster, schema, i as u16, left).await?.min(greatest(c.ty));
                if !c.name.starts_with('#') {
                    generated = n;
                }
                image = assign::replace(schema, &image, i as u16, &assign::assign(c, Datum::UInt(n), making.assign)?)?;
            }
        } else if !c.nullable && c.generated.is_none() && is_null(&image, i) {
            let has_none = matches!(plan.defaults.get(i), Some(Err(_)));
            let mut value = match given(i) {
                source @ (Given::Default | Given::Unnamed) if has_none => making.value(i, source, &mut s.refused)?,
                _ => Datum::Null,
            };
            if value.is_null() {
                value = making.in_place_of_null(c, many, &mut s.refused)?;
            }
            image = assign::replace(schema, &image, i as u16, &value)?;
        }
    }
    s.images.push(&image);
    let late: Vec<u16> = (0u16..).zip(&schema.columns).filter(|(_, c)| c.generated.is_some()).map(|(i, _)| i).collect();
    rules::complete(&making, table, &late, count > 1, s)?;
    Ok(Made::Row(generated))
}

/// The row as BEFORE triggers see it: nothing is generated yet, and NULL stands where there is no value.
fn draft<'g: 'm, 'm>(
    making: &Making<'m>,
    given: &impl Fn(usize) -> Given<'g>,
    many: bool,
    s: &mut Scratch,
) -> Done<()> {
    let table = &making.plan.table;
    let (rules, mut late) = (table.rules()?, Vec::new());
    let mut values: Vec<Datum<'_>> = Vec::with_capacity(table.schema.columns.len());
    for i in 0..table.schema.columns.len() {
        let source = given(i);
        if rules.is_some_and(|rules| rules.is_late(i as u16, &source)) {
            late.push(i as u16);
            values.push(Datum::Null);
            continue;
        }
        let is_named = making.plan.places.get(i).is_some_and(Option::is_some);
        let has_none =
            matches!(source, Given::Default) && matches!(making.plan.defaults.get(i), Some(Err(_))) && !is_named;
        values.push(if has_none { Datum::Null } else { making.value(i, source, &mut s.refused)? });
    }
    encode_row(&table.schema, &values, &mut s.images)?;
    rules::complete(making, table, &late, many, s)
}

/// The greatest value that a column of integers holds.
pub fn greatest(ty: ColumnType) -> u64 {
    match ty {
        ColumnType::Int { bits, unsigned } => u64::MAX >> (64 - u32::from(bits) + u32::from(!unsigned)),
        _ => u64::MAX,
    }
}

/// Columns whose values are gathered without an allocation.
const COLUMNS_IN_PLACE: usize = 32;

/// Appends the stored form of a row of values.
pub fn encode_row(schema: &TableSchema, values: &[Datum<'_>], out: &mut Strings) -> Result<(), ErrorCode> {
    let mut in_place = [Value::Null; COLUMNS_IN_PLACE];
    let mut many = Vec::new();
    let stored = match in_place.get_mut(..values.len()) {
        Some(place) => place,
        None => {
            many.resize(values.len(), Value::Null);
            many.as_mut_slice()
        }
    };
    for ((place, value), c) in stored.iter_mut().zip(values).zip(&schema.columns) {
        *place = assign::stored(c.ty, value);
    }
    match schema.layout().encode(stored, out.writer()) {
        Ok(()) => out.end(),
        Err(e) => {
            out.abandon();
            return Err(e);
        }
    }
    Ok(())
}
