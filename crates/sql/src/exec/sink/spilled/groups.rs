//! Groups that do not fit into memory, and distinct values within groups.

use crate::{
    errors::{self, Result},
    exec::{
        aggregate::{is_order_free, push_distinct_key},
        sink::{Groups, Sink, push_sort_keys},
        target::Target,
        window::spilled::Windowed,
    },
    expr::Context,
    plan::select::Group,
    spill::{Gathered, Merge, Sorter, values},
};

/// In front of a key of `Over::values`: the numbers of the group and of its aggregate.
const PLACE: usize = 6;

impl Sink<'_> {
    /// A row whose group may be one of those in memory.
    pub(in crate::exec::sink) fn accumulate_over(&mut self, group: &Group, row: &[u8]) -> Result<()> {
        let cx = self.of_group(row, &[]);
        if let Some(rows) = self.over.as_mut().and_then(|over| over.rows.as_mut()) {
            rows.rows.push(row);
            return Ok(());
        }
        if group.rollup {
            for (key, keys) in Self::rollup_keys(group, &cx)? {
                self.add_over(group, &cx, &key, keys)?;
            }
            return Ok(());
        }
        let mut key = self.over.as_mut().map(|over| std::mem::take(&mut over.scratch.0)).unwrap_or_default();
        key.clear();
        push_sort_keys(&group.keys, &cx, &mut key)?;
        self.add_over(group, &cx, &key, group.keys.len())?;
        self.over.get_or_insert_default().scratch.0 = key;
        Ok(())
    }

    fn add_over(&mut self, group: &Group, cx: &Context<'_>, key: &[u8], keys: usize) -> Result<()> {
        if let Some(number) = self.buffers.groups.number(key) {
            return self.add_to_full(group, cx, number);
        }
        if let Some(groups) = self.over.get_or_insert_default().groups.as_mut() {
            groups.push_parts(key, &[&(keys as u16).to_le_bytes(), cx.row]);
        }
        Ok(())
    }

    /// A row of a group that takes no more distinct values in.
    fn add_to_full(&mut self, group: &Group, cx: &Context<'_>, number: usize) -> Result<()> {
        let share = self.share();
        let over = self.over.get_or_insert_default();
        let accumulators = self.groups.accumulators(group, number);
        // Small, and there only where there are distinct ones.
        let (mut key, mut value_bytes) = (Vec::new(), Vec::new());
        for (at, (aggregate, so_far)) in group.aggregates.iter().zip(accumulators).enumerate() {
            let Some(argument) = aggregate.argument.as_ref().filter(|_| aggregate.distinct) else {
                self.group_bytes += so_far.add(aggregate, cx)?;
                continue;
            };
            let value = argument.eval(cx)?;
            if value.is_null() {
                continue;
            }
            key.clear();
            key.extend_from_slice(&(number as u32).to_be_bytes());
            key.extend_from_slice(&(at as u16).to_be_bytes());
            push_distinct_key(&mut key, aggregate, &value);
            if !so_far.has_seen(&key[PLACE..]) {
                value_bytes.clear();
                values::push(&value, &mut value_bytes);
                let came = over.next_number();
                over.values.get_or_insert_with(|| Sorter::new(share)).push_parts(&key, &[&came, &value_bytes, cx.row]);
            }
        }
        Ok(())
    }

    /// Gives groups the distinct values that they have not seen.
    async fn take_values(&mut self, group: &Group, groups: &mut Groups) -> Result<()> {
        let Some(sorter) = self.over.get_or_insert_default().values.take() else { return Ok(()) };
        let mut all = sorter.merge(self.env).await?;
        let mut in_order = Sorter::new(self.share());
        let (mut last, mut is_first) = (Vec::new(), true);
        while all.advance(self.env).await? {
            if std::mem::take(&mut is_first) || all.key() != last {
                last.clear();
                last.extend_from_slice(all.key());
                let (place, came) = (&all.key()[..PLACE], &all.payload()[..8]);
                if !self.add_value(group, groups, place, &all.payload()[8..], true)? {
                    in_order.push_parts(came, &[place, &all.payload()[8..]]);
                    in_order.settle(self.env).await?;
                }
            }
        }
        let mut all = in_order.merge(self.env).await?;
        while all.advance(self.env).await? {
            let (place, rest) = all.payload().split_at(PLACE);
            self.add_value(group, groups, place, rest, false)?;
        }
        Ok(())
    }

    /// Adds a distinct value; false where it is asked not to, since the order matters.
    fn add_value(
        &mut self,
        group: &Group,
        groups: &mut Groups,
        place: &[u8],
        mut rest: &[u8],
        in_any_order: bool,
    ) -> Result<bool> {
        let number = place.first_chunk::<4>().map_or(0, |n| u32::from_be_bytes(*n));
        let at = usize::from(place[4]) << 8 | usize::from(place[5]);
        let value = values::take(&mut rest)?;
        let aggregate = &group.aggregates[at];
        if in_any_order && !is_order_free(aggregate, &value) {
            return Ok(false);
        }
        let cx = self.of_group(rest, &[]);
        let so_far = &mut groups.accumulators(group, number as usize)[at];
        self.group_bytes += so_far.add_new(aggregate, &value, &cx)?;
        Ok(true)
    }

    /// Groups in memory and those of rows in files, by key.
    pub(in crate::exec::sink) async fn finish_groups_over(
        &mut self,
        group: &Group,
        mut groups: Groups,
        windowed: &mut Windowed,
        out: &mut impl Target,
    ) -> Result<()> {
        self.is_finishing = true;
        if let Some(rows) = self.over.as_mut().and_then(|over| over.rows.take()) {
            return self.each_row(group, rows, windowed, out).await;
        }
        self.take_values(group, &mut groups).await?;
        let mut known = self.group_order(group, &mut groups).await?.into_iter().peekable();
        let Some(sorter) = self.over.get_or_insert_default().groups.take() else {
            return Err(errors::internal("groups that are nowhere"));
        };
        let mut rows = sorter.merge(self.env).await?;
        let mut has_rows = rows.advance(self.env).await?;
        loop {
            self.env.breathe(1).await?;
            let is_in_memory = match known.peek() {
                None if !has_rows => return Ok(()),
                None => false,
                Some((number, _)) => !has_rows || self.buffers.groups.get(*number).is_some_and(|key| key < rows.key()),
            };
            let goes_on = if is_in_memory {
                let Some((number, values)) = known.next() else { return Ok(()) };
                let values = match values {
                    None => self.group_values(group, &mut groups, number)?,
                    values => values,
                };
                let Some(values) = values else { continue };
                self.pass_on(group, groups.first(number), values, windowed, out).await?
            } else {
                let (mut one, has_more) = self.one_group(group, &mut rows).await?;
                has_rows = has_more;
                let Some(values) = self.group_values(group, &mut one, 0)? else { continue };
                self.pass_on(group, one.first(0), values, windowed, out).await?
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Rows that are groups by themselves.
    pub(super) async fn each_row(
        &mut self,
        group: &Group,
        rows: Gathered,
        windowed: &mut Windowed,
        out: &mut impl Target,
    ) -> Result<()> {
        let mut rows = rows.end(self.env).await?.reader();
        while rows.advance(self.env).await? {
            let mut one = Groups::default();
            one.push(group, rows.row(), 0);
            if let Some(values) = self.group_values(group, &mut one, 0)? {
                self.pass_on(group, rows.row(), values, windowed, out).await?;
            }
        }
        Ok(())
    }

    /// Takes all rows of the group that the first has; whether there are more behind.
    async fn one_group(&mut self, group: &Group, rows: &mut Merge) -> Result<(Groups, bool)> {
        let key = rows.key().to_vec();
        let before = std::mem::take(&mut self.group_bytes);
        let (mut is_new, mut is_full) = (true, false);
        let has_more = loop {
            let (keys, row) = rows.payload().split_first_chunk::<2>().unwrap_or((&[0, 0], &[]));
            let cx = self.of_group(row, &[]);
            if is_full {
                self.add_to_full(group, &cx, 0)?;
            } else {
                self.add_to_group(group, &cx, 0, is_new, u16::from_le_bytes(*keys).into())?;
            }
            is_new = false;
            is_full |= self.group_bytes > self.share();
            if self.group_bytes > self.together() {
                return Err(errors::out_of_memory_for("values of a group", self.together()));
            }
            if let Some(values) = self.over.as_mut().and_then(|over| over.values.as_mut()) {
                values.settle(self.env).await?;
            }
            if !rows.advance(self.env).await? {
                break false;
            }
            if rows.key() != key {
                break true;
            }
        };
        let mut one = std::mem::take(&mut self.groups);
        self.take_values(group, &mut one).await?;
        self.group_bytes = before;
        Ok((one, has_more))
    }
}
