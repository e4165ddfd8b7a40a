//! Where the rows that a query block makes go: to the client, or into memory for the block around it.

use std::future::Future;

use apus_types::{ColumnType, RowLayout, Value};

use crate::{
    errors::{self, Result},
    expr::{Context, Env, Expr, assign, json, moments, result_cells},
    plan::select::Output as Column,
    server::Output,
    spill::Gathered,
    value::{
        datum::{Datum, Number},
        decimal,
        zone::Zone,
    },
};

/// A consumer of rows.
pub trait Target {
    /// Takes the outputs of a row.
    ///
    /// # Errors
    /// What evaluating them meets.
    fn row_of(&mut self, outputs: &[Column], cx: &Context<'_>) -> Result<()>;
    /// Takes outputs that were evaluated before.
    ///
    /// # Errors
    /// More than the target may hold.
    fn row_of_values(&mut self, outputs: &[Column], values: &[Datum<'_>]) -> Result<()>;
    /// Between two rows.
    fn flush_if_full(&mut self) -> impl Future<Output = Result<()>>;
}

impl Target for Output<'_> {
    #[inline]
    fn row_of(&mut self, outputs: &[Column], cx: &Context<'_>) -> Result<()> {
        self.row_start();
        for output in outputs {
            match &output.expr {
                e @ Expr::Column(c) if matches!(c.ty, ColumnType::Char { .. }) && cx.env.variables.pads_chars => {
                    result_cells::write_datum(self, output.kind, &e.eval(cx)?);
                }
                Expr::Column(c) => {
                    result_cells::write_value(self, c.ty, cx.layout.value(cx.row, c.slot), cx.env.zone())
                }
                e => result_cells::write_datum(self, output.kind, &e.eval(cx)?),
            }
        }
        self.row_end();
        Ok(())
    }
    fn row_of_values(&mut self, outputs: &[Column], values: &[Datum<'_>]) -> Result<()> {
        self.row_start();
        for (output, value) in outputs.iter().zip(values) {
            result_cells::write_datum(self, output.kind, value);
        }
        self.row_end();
        Ok(())
    }
    async fn flush_if_full(&mut self) -> Result<()> {
        Output::flush_if_full(self).await
    }
}

/// Rows kept in the form of stored ones.
pub struct Kept<'k> {
    pub types: &'k [ColumnType],
    pub layout: &'k RowLayout,
    pub rows: Gathered,
    /// Beyond so many bytes they go to a file where they may, and error 3170 where they may not.
    pub bytes_max: usize,
    pub file: Option<&'k Env>,
}

impl Kept<'_> {
    fn check(&self) -> Result<()> {
        let is_over = self.file.is_none() && self.rows.rows.byte_len() > self.bytes_max;
        if is_over { Err(errors::out_of_query_memory(self.bytes_max)) } else { Ok(()) }
    }
    fn push(&mut self, values: &[Value<'_>]) -> Result<()> {
        let rows = &mut self.rows.rows;
        if let Err(e) = self.layout.encode(values, rows.writer()) {
            rows.abandon();
            return Err(errors::from_code(e, ""));
        }
        rows.end();
        self.check()
    }
}

impl Target for Kept<'_> {
    fn row_of(&mut self, outputs: &[Column], cx: &Context<'_>) -> Result<()> {
        let mut computed = Vec::with_capacity(outputs.len());
        for (output, &ty) in outputs.iter().zip(self.types) {
            computed.push(match &output.expr {
                Expr::Column(c) if c.ty == ty => Datum::Null,
                e => match (ty, e.eval(cx)?) {
                    (ColumnType::DateTime { .. }, time @ Datum::Time(..)) => of_today(cx, &time),
                    (_, value) => fitted(ty, value),
                },
            });
        }
        let values: Vec<Value<'_>> = outputs
            .iter()
            .zip(self.types)
            .zip(&computed)
            .map(|((output, &ty), datum)| match &output.expr {
                Expr::Column(c) if c.ty == ty => cx.layout.value(cx.row, c.slot),
                _ => assign::stored(ty, datum),
            })
            .collect();
        self.push(&values)
    }
    fn row_of_values(&mut self, _: &[Column], values: &[Datum<'_>]) -> Result<()> {
        let is_today = |(v, ty): (&Datum<'_>, &ColumnType)| {
            matches!((v, ty), (Datum::Time(..), ColumnType::DateTime { .. } | ColumnType::Date))
        };
        if values.iter().zip(self.types).any(is_today) {
            return Err(errors::not_supported("a grouped time in a set operation with dates"));
        }
        let fit: Vec<Datum<'_>> = values.iter().zip(self.types).map(|(v, &ty)| fitted(ty, v.borrowed())).collect();
        let values: Vec<Value<'_>> = fit.iter().zip(self.types).map(|(v, &ty)| assign::stored(ty, v)).collect();
        self.push(&values)
    }
    async fn flush_if_full(&mut self) -> Result<()> {
        match self.file {
            Some(env) if self.rows.is_full(self.bytes_max) => Box::pin(self.rows.settle(self.bytes_max, env)).await,
            _ => Ok(()),
        }
    }
}

/// A time as a moment of today.
fn of_today(cx: &Context<'_>, time: &Datum<'_>) -> Datum<'static> {
    moments::moment(cx, time, moments::Wanted::Parts)
        .map_or(Datum::Null, |c| Datum::DateTime(apus_types::time::pack_datetime(c), 6))
}

/// A computed value as a column of [`type_of`](crate::expr::coercion::type_of) (or one that a set operation has made of several) keeps it.
pub fn fitted(ty: ColumnType, value: Datum<'_>) -> Datum<'_> {
    if value.is_null() {
        return Datum::Null;
    }
    let exact = |scale| {
        let n = value.number()?;
        match n {
            Number::Double(x) => decimal::from_f64(x, scale),
            n => n.to_decimal().and_then(|(n, s)| decimal::rescale(n, s, scale)),
        }
    };
    match ty {
        ColumnType::Int { unsigned: false, .. } => match value {
            Datum::Int(_) => value,
            _ => Datum::Int(value.number().map_or(0, |n| n.to_i128().clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
        },
        ColumnType::Int { .. } | ColumnType::Year => {
            let n = value.number().map_or(0, Number::to_i128);
            Datum::UInt(u64::try_from(n).unwrap_or(n as i64 as u64))
        }
        ColumnType::Bit { length } => Datum::Bit(value.number().map_or(0, Number::to_i128) as u64, length),
        ColumnType::Decimal { scale, .. } => exact(scale).map_or(value, |unscaled| Datum::Decimal { unscaled, scale }),
        ColumnType::Float | ColumnType::Double => match (&value, exact(value.shown_scale())) {
            // With the digits that it is shown with.
            (Datum::Fine { shown, .. }, Some(unscaled)) => Datum::Double(Number::Decimal(unscaled, *shown).to_f64()),
            _ => Datum::Double(value.number().map_or(0.0, Number::to_f64)),
        },
        ColumnType::Char { .. } | ColumnType::VarChar { .. } | ColumnType::Text { .. } => match value {
            Datum::Text(_) => value,
            other => Datum::Text(other.as_text().into_owned().into()),
        },
        ColumnType::Binary { .. } | ColumnType::VarBinary { .. } | ColumnType::Blob { .. } => match value {
            Datum::Bytes(_) => value,
            other => Datum::Bytes(other.as_text().into_owned().into()),
        },
        ColumnType::Json => match value {
            Datum::Json(_) => value,
            other => json::datum(&json::of_datum(&other)),
        },
        // Of the column itself, or of one with the same labels.
        ColumnType::Label { .. } => value,
        ColumnType::Date => value
            .civil(Zone::UTC)
            .map_or(Datum::Null, |c| Datum::Date(apus_types::time::pack_date(c.year, c.month, c.day))),
        ColumnType::DateTime { decimals } | ColumnType::Timestamp { decimals } => value
            .civil(Zone::UTC)
            .map_or(Datum::Null, |c| Datum::DateTime(apus_types::time::pack_datetime(c), decimals)),
        ColumnType::Time { decimals } => value.time(Zone::UTC).map_or(Datum::Null, |t| Datum::Time(t, decimals)),
    }
}
