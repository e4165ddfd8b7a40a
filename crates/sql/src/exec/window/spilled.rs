//! Rows of a block with window functions that are more than memory has room for.
//!
//! They are in a file, with their values. For each window they are sorted by its partition and order ([`Sorter`]); then as many whole partitions as fit are in memory at a time, get the values of that
//! window's functions as they would have there, and are written for the next one. A partition that does not fit by itself goes through [`super::long_partition`], if its functions look only where that can.

use std::rc::Rc;

use super::{Row, Sorted, Stage, long_partition::Long, of_row, values_of};
use crate::{
    errors::Result,
    exec::sink::push_sort_keys,
    expr::Env,
    plan::window::Windows,
    spill::{File, Reader, Sorter, Stream, TOGETHER_BYTES_MIN, Writer, values},
    value::datum::Datum,
};

/// Part of the memory for what is sorted.
const SHARE: usize = 4;

/// Rows of a block that are being gathered for its windows.
#[derive(Default)]
pub struct Windowed {
    rows: Vec<Row>,
    bytes: usize,
    file: Option<(File, Writer)>,
}

/// All of them.
pub enum All {
    Memory(Vec<Row>),
    File(Stream),
}

impl Windowed {
    pub fn push(&mut self, row: &[u8], values: Vec<Datum<'static>>) {
        if let Some((_, writer)) = &mut self.file {
            return push_to(writer, row, &values);
        }
        let row = Row { row: row.to_vec(), values };
        self.bytes += row.byte_len();
        self.rows.push(row);
    }

    /// Memory used, in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes
    }
    /// There is something to write.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        self.file.as_ref().map_or(self.bytes > bytes_max, |(_, writer)| writer.is_full())
    }

    /// Writes rows to a file.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn write(&mut self, env: &Env) -> Result<()> {
        let (file, mut writer) = match self.file.take() {
            Some(open) => open,
            None => (File::create(env).await?, Writer::default()),
        };
        for row in self.rows.drain(..) {
            push_to(&mut writer, &row.row, &row.values);
            if writer.is_full() {
                writer.flush(&file, env).await?;
            }
        }
        if writer.is_full() {
            writer.flush(&file, env).await?;
        }
        self.bytes = 0;
        self.file = Some((file, writer));
        Ok(())
    }

    /// # Errors
    /// As [`File::append`].
    pub async fn end(self, env: &Env) -> Result<All> {
        Ok(match self.file {
            None => All::Memory(self.rows),
            Some((file, writer)) => All::File(writer.end(&file, env).await?),
        })
    }
}

impl Row {
    pub fn byte_len(&self) -> usize {
        size_of::<Row>() + self.row.len() + self.values.iter().map(|v| size_of_val(v) + v.heap_bytes()).sum::<usize>()
    }
}

pub fn push_to(writer: &mut Writer, row: &[u8], row_values: &[Datum<'_>]) {
    let mut group = Vec::new();
    values::push_group(row, row_values, &mut group);
    writer.push(&[], &group);
}

/// Fills in the values of window functions. Returns the rows in the order in which the last sort left them.
///
/// # Errors
/// 3170 of a partition that does not fit into memory; those of files; KILL, the deadline.
pub async fn fill(stage: &Stage<'_>, windows: &Windows, mut rows: Stream, bytes_max: usize) -> Result<Stream> {
    for number in 0..windows.list.len() {
        rows = one_window(stage, windows, number, rows, bytes_max).await?;
    }
    Ok(rows)
}

async fn one_window(
    stage: &Stage<'_>,
    windows: &Windows,
    number: usize,
    rows: Stream,
    bytes_max: usize,
) -> Result<Stream> {
    let (env, window) = (stage.cx.env, &windows.list[number]);
    let mut sorter = Sorter::new(bytes_max / SHARE);
    let mut reader = Reader::new(Rc::new(rows));
    let mut key = Vec::new();
    while reader.advance(env).await? {
        env.breathe(1).await?;
        let row = row_of(reader.payload())?;
        let cx = of_row(stage, &row);
        key.clear();
        push_sort_keys(&window.partition, &cx, &mut key)?;
        let length = (key.len() as u32).to_le_bytes();
        push_sort_keys(&window.order, &cx, &mut key)?;
        sorter.push_parts(&key, &[&length, reader.payload()]);
        sorter.settle(env).await?;
    }
    drop(reader);
    let mut sorted = sorter.merge(env).await?;
    let file = File::create(env).await?;
    let mut filled = Filled { stage, windows, number, file, writer: Writer::default() };
    let most = bytes_max.max(TOGETHER_BYTES_MIN);
    // The last partition's rows begin at `own`, of so many bytes.
    let (mut some, mut bytes, mut own) = (Vec::new(), 0, (0, 0));
    let (mut partition, mut long) = (None::<Vec<u8>>, None::<Long<'_>>);
    while sorted.advance(env).await? {
        let (length, group) = sorted.payload().split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        let of_row = sorted.key().get(..u32::from_le_bytes(*length) as usize).unwrap_or(&[]);
        if partition.as_deref() != Some(of_row) {
            if let Some(long) = long.take() {
                long.give(&filled.file, &mut filled.writer).await?;
            }
            if bytes > bytes_max / SHARE {
                filled.give(std::mem::take(&mut some)).await?;
                bytes = 0;
            }
            own = (some.len(), 0);
            partition = Some(of_row.to_vec());
        }
        let row = row_of(group)?;
        if let Some(long) = &mut long {
            long.push(&row).await?;
            continue;
        }
        bytes += row.byte_len();
        own.1 += row.byte_len();
        some.push(row);
        if own.1 > most {
            let rows = some.split_off(own.0);
            filled.give(std::mem::take(&mut some)).await?;
            let long = long.insert(Long::new(stage, windows, number, most).await?);
            for row in &rows {
                long.push(row).await?;
            }
            bytes = 0;
        }
    }
    if let Some(long) = long {
        long.give(&filled.file, &mut filled.writer).await?;
    }
    filled.give(some).await?;
    filled.writer.end(&filled.file, env).await
}

pub fn row_of(group: &[u8]) -> Result<Row> {
    let (row, values) = values::group(group)?;
    Ok(Row { row: row.to_vec(), values: values.into_iter().map(Datum::into_owned).collect() })
}

/// Rows with the values of a window.
struct Filled<'f> {
    stage: &'f Stage<'f>,
    windows: &'f Windows,
    number: usize,
    file: File,
    writer: Writer,
}

impl Filled<'_> {
    /// Whole partitions, in order.
    async fn give(&mut self, mut rows: Vec<Row>) -> Result<()> {
        let env = self.stage.cx.env;
        let sorted = Sorted::default().by(self.stage, &self.windows.list[self.number], &rows).await?;
        values_of(self.stage, self.windows, self.number, &sorted, &mut rows).await?;
        for row in &rows {
            push_to(&mut self.writer, &row.row, &row.values);
            if self.writer.is_full() {
                self.writer.flush(&self.file, env).await?;
            }
        }
        Ok(())
    }
}
