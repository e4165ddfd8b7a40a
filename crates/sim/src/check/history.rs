//! Histories of list transactions as events, and their form in files: Jepsen's, one map per line.
//!
//! ```text
//! {:index 0, :type :invoke, :process 3, :time 1200, :f :txn, :value [[:append 5 1] [:r 7 nil]]}
//! {:index 1, :type :ok, :process 3, :time 9100, :f :txn, :value [[:append 5 1] [:r 7 [2 4]]]}
//! ```
//!
//! `:ok` happened, `:fail` did not and never will, `:info` may have happened or may yet. A process has at most one transaction open; one that
//! ends with `:info` ends the process too, in Jepsen; here it may go on. The order of the lines is the order of the events: whoever writes
//! them writes an invocation before the request is sent and an end after its answer has come. `:index`, if given, must rise with the lines.
//! Keys and values are numbers from 0.

use std::io::{self, BufRead, Write};

use super::edn::{EdnError, Forms, Value};

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mop {
    Append {
        key: u64,
        value: u64,
    },
    /// `None`: not answered (yet). A key that was never appended to reads as the empty list.
    Read {
        key: u64,
        list: Option<Vec<u64>>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    Invoke,
    Ok,
    Fail,
    Info,
}

/// The begin or the end of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Rises from event to event.
    pub index: u64,
    /// Nanoseconds, for people.
    pub time: u64,
    pub process: u64,
    pub kind: EventKind,
    pub mops: Vec<Mop>,
}

/// Writes events as they come.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    next_index: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Writer<W> {
        Writer { out, next_index: 0 }
    }
    /// Writes an event; its index is the writer's own.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&mut self, time: u64, process: u64, kind: EventKind, mops: &[Mop]) -> io::Result<()> {
        let kind = match kind {
            EventKind::Invoke => "invoke",
            EventKind::Ok => "ok",
            EventKind::Fail => "fail",
            EventKind::Info => "info",
        };
        let index = self.next_index;
        self.next_index += 1;
        write!(self.out, "{{:index {index}, :type :{kind}, :process {process}, :time {time}, :f :txn, :value [")?;
        for (i, mop) in mops.iter().enumerate() {
            let gap = if i == 0 { "" } else { " " };
            match mop {
                Mop::Append { key, value } => write!(self.out, "{gap}[:append {key} {value}]")?,
                Mop::Read { key, list: None } => write!(self.out, "{gap}[:r {key} nil]")?,
                Mop::Read { key, list: Some(list) } => {
                    write!(self.out, "{gap}[:r {key} [")?;
                    for (i, value) in list.iter().enumerate() {
                        write!(self.out, "{}{value}", if i == 0 { "" } else { " " })?;
                    }
                    self.out.write_all(b"]]")?;
                }
            }
        }
        self.out.write_all(b"]}\n")
    }
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
    /// The output again.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Reads events back; other operations than `:txn`, and those of processes without a number (the nemesis), are passed over.
#[derive(Debug)]
pub struct Reader<R> {
    forms: Forms<R>,
    lines: u64,
    last_index: Option<u64>,
}

impl<R: BufRead> Reader<R> {
    pub fn new(source: R) -> Reader<R> {
        Reader { forms: Forms::new(source), lines: 0, last_index: None }
    }

    fn next_event(&mut self) -> Result<Option<Event>, EdnError> {
        while let Some((position, form)) = self.forms.next_form()? {
            let refuse = |what: &str| Forms::<R>::refusal(position, what);
            let form = match form {
                Value::Tagged(_, inner) => *inner, // jepsen.history.Op
                form => form,
            };
            if !matches!(form, Value::Map(_)) {
                return Err(refuse("an event is a map"));
            }
            let Some(Value::Int(process)) = form.get("process") else { continue };
            let Some(Value::Keyword(f)) = form.get("f") else { return Err(refuse("an event needs :f")) };
            if f != "txn" {
                continue;
            }
            let kind = match form.get("type") {
                Some(Value::Keyword(kind)) => match kind.as_str() {
                    "invoke" => EventKind::Invoke,
                    "ok" => EventKind::Ok,
                    "fail" => EventKind::Fail,
                    "info" => EventKind::Info,
                    _ => return Err(refuse(":type is :invoke, :ok, :fail or :info")),
                },
                _ => return Err(refuse("an event needs :type")),
            };
            let natural = |value: Option<&Value>, what: &str| match value {
                None => Ok(None),
                Some(Value::Int(n)) => u64::try_from(*n).map(Some).map_err(|_| refuse(what)),
                Some(_) => Err(refuse(what)),
            };
            let process = u64::try_from(*process).map_err(|_| refuse(":process is a number from 0"))?;
            let time = natural(form.get("time"), ":time is a number from 0")?.unwrap_or(0);
            let index = natural(form.get("index"), ":index is a number from 0")?;
            if index.is_some() && index <= self.last_index {
                return Err(refuse(":index does not rise"));
            }
            self.last_index = index.or(self.last_index);
            self.lines += 1;
            let mops = match form.get("value") {
                Some(Value::Sequence(mops)) => {
                    mops.iter().map(|m| mop(m).map_err(refuse)).collect::<Result<Vec<_>, _>>()?
                }
                _ => return Err(refuse(":value of a :txn is a vector of operations")),
            };
            return Ok(Some(Event { index: self.lines - 1, time, process, kind, mops }));
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, EdnError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

fn mop(form: &Value) -> Result<Mop, &'static str> {
    const FORM: &str = "an operation is [:append key value] or [:r key list], keys and values numbers from 0";
    let natural = |value: &Value| match value {
        Value::Int(n) => u64::try_from(*n).map_err(|_| FORM),
        _ => Err(FORM),
    };
    let Value::Sequence(parts) = form else { return Err(FORM) };
    let [Value::Keyword(what), key, argument] = parts.as_slice() else { return Err(FORM) };
    let key = natural(key)?;
    match (what.as_str(), argument) {
        ("append", value) => Ok(Mop::Append { key, value: natural(value)? }),
        ("r", Value::Nil) => Ok(Mop::Read { key, list: None }),
        ("r", Value::Sequence(list)) => {
            Ok(Mop::Read { key, list: Some(list.iter().map(natural).collect::<Result<_, _>>()?) })
        }
        _ => Err(FORM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let append = Mop::Append { key: 5, value: 1 };
        let cases = [
            (EventKind::Invoke, vec![append.clone(), Mop::Read { key: 7, list: None }]),
            (EventKind::Ok, vec![append.clone(), Mop::Read { key: 7, list: Some(vec![2, 4]) }]),
            (EventKind::Info, vec![append, Mop::Read { key: 7, list: Some(Vec::new()) }]),
            (EventKind::Fail, Vec::new()),
        ];
        let mut writer = Writer::new(Vec::new());
        for (i, (kind, mops)) in cases.iter().enumerate() {
            writer.write(i as u64 * 10, 3, *kind, mops).expect("memory");
        }
        let bytes = writer.into_inner();
        let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        assert_eq!(
            String::from_utf8_lossy(first),
            "{:index 0, :type :invoke, :process 3, :time 0, :f :txn, :value [[:append 5 1] [:r 7 nil]]}"
        );
        let read: Vec<Event> = Reader::new(bytes.as_slice()).collect::<Result<_, _>>().expect("our own form");
        for (i, (event, (kind, mops))) in read.iter().zip(cases).enumerate() {
            let (index, time) = (i as u64, i as u64 * 10);
            assert_eq!(*event, Event { index, time, process: 3, kind, mops });
        }
        assert_eq!(read.len(), 4);
    }

    #[test]
    fn histories_of_jepsen_are_read() {
        let text = r#"[{:process :nemesis, :type :info, :f :start, :value nil}
            #jepsen.history.Op{:index 4, :time 12, :type :info, :process 0, :f :txn, :value [[:r 1 nil]], :error [:timeout "x"]}
            {:process 1, :type :ok, :f :read, :value 5}]"#;
        let read: Vec<Event> = Reader::new(text.as_bytes()).collect::<Result<_, _>>().expect("good");
        let mops = vec![Mop::Read { key: 1, list: None }];
        assert_eq!(read, [Event { index: 0, time: 12, process: 0, kind: EventKind::Info, mops }]);
    }

    #[test]
    fn bad_events_are_refused_where_they_stand() {
        let good = "{:index 1, :type :invoke, :process 1, :f :txn, :value []}\n";
        let cases = [
            "{:type :ok, :process 1, :f :txn, :value [[:append 1 -2]]}",
            "{:type :ok, :process 1, :f :txn, :value [[:append 1]]}",
            "{:type :ok, :process 1, :f :txn, :value [[:r 1 [x]]]}",
            "{:type :ok, :process 1, :f :txn, :value [[:cas 1 2]]}",
            "{:type :ok, :process 1, :f :txn, :value 7}",
            "{:type :done, :process 1, :f :txn, :value []}",
            "{:process 1, :f :txn, :value []}",
            "{:type :ok, :process 1, :value []}",
            "{:type :ok, :process -1, :f :txn, :value []}",
            "{:index 1, :type :ok, :process 1, :f :txn, :value []}",
            "{:time :late, :type :ok, :process 1, :f :txn, :value []}",
            "[1 2]",
        ];
        for case in cases {
            let text = format!("{good}{case}");
            let error = Reader::new(text.as_bytes()).find_map(Result::err).expect(case);
            assert_eq!((error.line, error.column), (2, 1), "{case}: {error}");
        }
    }
}
