//! `apus inspect`: prints any file that Apus writes, without a cluster, and says what is wrong with it.
//!
//! A file is known by its content, and by its name where the content does not tell. A segment of a redo log is judged with the control file that
//! lies beside it, which says whose log it is, and with the segment that the log goes on in; a checkpoint with the one of its log, which says how long it is. That file has their keys,
//! too, if they are encrypted. Without the disk key that opens it, all that is said is which one it takes.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use apus_blocks::{dict::DICTIONARY_MAGIC, qmgr::Acceptor};
use apus_kernel::{DataFile, DataFileKind};
use apus_mgmt::kept::Promise;
use apus_redo::{
    BLOCK_ALIGN, Checkpoint, Closed, Control, Entry, Layout, Reader, Step, Unread, Vault,
    key::{FileKey, Keys},
    key_name, sealed_under,
};
use apus_signal::{
    DecodeError, Reader as Bytes, copy::CopiedRow, dict::Dictionary, file::unseal, ldm::PreparedRow, qmgr::Incarnation,
    view::View,
};
use apus_types::{Chain, Epoch, NodeId, TableId};
use prost::Message;

use crate::disk_key::DiskKeyArgs;

#[derive(clap::Args)]
pub struct InspectArgs {
    /// Files of a data directory: redo-I-N.log, lcp-I-N.data, redo-I.ctl or redo-I-of-W-C.ctl, view, dictionary, arbitrator
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Name the rows of each entry: table, partition, number, key
    #[arg(long)]
    rows: bool,
    /// One line per file: what it is and whether it is whole
    #[arg(long, conflicts_with = "rows")]
    brief: bool,
    #[command(flatten)]
    disk_key: DiskKeyArgs,
}

/// Prints the files; fails if one of them is not as it was written.
///
/// # Errors
/// A file cannot be read.
pub fn run(args: &InspectArgs) -> Result<ExitCode, String> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut is_whole, vault) = (true, args.disk_key.vault()?);
    for path in &args.files {
        let bytes = read(path)?;
        let (rows, is_brief, vault) = (args.rows, args.brief, vault.clone());
        let mut report = Report { text: String::new(), rows, is_brief, vault, is_closed: false };
        let judged = judge(path, &bytes, &mut report);
        is_whole &= judged.is_ok();
        let failed = if report.is_closed { "NOT READ" } else { "DAMAGED" };
        let verdict = judged.unwrap_or_else(|what| format!("{failed}: {what}"));
        let printed = writeln!(out, "{}{}: {verdict}", report.text, path.display());
        if printed.and_then(|()| out.flush()).is_err() {
            break; // whoever reads has seen enough
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

struct Report {
    text: String,
    rows: bool,
    is_brief: bool,
    vault: Vault,
    /// A key is missing: nothing can be said of what is in it.
    is_closed: bool,
}

impl Report {
    /// What is in a file that may be encrypted.
    fn open(&mut self, name: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
        if let Some(master) = sealed_under(bytes) {
            self.line(format_args!("encrypted, its key is under disk key {}", key_name(master)));
        }
        self.vault.open_file(name, bytes).map_err(|closed| {
            self.is_closed = matches!(closed, Closed::NoKey(_));
            if self.is_closed { format!("it {closed}: give --disk-key") } else { format!("it {closed}") }
        })
    }
    fn control(&mut self, name: &str, bytes: &[u8]) -> Result<Control, String> {
        let bytes = self.open(name, bytes)?;
        Control::decode(&bytes, &self.vault).map_err(|why| {
            self.is_closed = matches!(why, Unread::NoKey(_));
            format!("it {why}")
        })
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if !self.is_brief {
            let _ = writeln!(self.text, "{line}");
        }
    }
}

/// Prints what is in it; the last line, or what is wrong.
fn judge(path: &Path, bytes: &[u8], report: &mut Report) -> Result<String, String> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match DataFile::parse(&name) {
        Some(file) if file.kind == DataFileKind::Redo => return segment(path, file, bytes, report),
        Some(file) => return checkpoint(path, file, bytes, report),
        None => {}
    }
    let kind: &[u8] = match name.as_str() {
        "view" | "view-synced" => b"APUSVIW",
        "arbitrator" => b"APUSARB",
        "dictionary" => b"APUSDIC",
        _ if name.starts_with("redo-") && name.ends_with(".ctl") => b"APUSRDC",
        _ => bytes.get(..7).unwrap_or_default(),
    };
    if kind == b"APUSRDC" {
        return report.control(&name, bytes).map(|c| judged(path, &name, &c, report));
    }
    let bytes = &*report.open(&name, bytes)?;
    let kind = if kind == b"APUSENC" { bytes.get(..7).unwrap_or_default() } else { kind };
    match kind {
        b"APUSVIW" => message(*b"APUSVIW1", bytes).map(|acceptor| view_file(&acceptor, report)),
        b"APUSARB" => message(*b"APUSARB1", bytes).map(|promise| arbitrator(&promise, report)),
        b"APUSDIC" => message(DICTIONARY_MAGIC, bytes).map(|dictionary| tables(&dictionary, report)),
        _ => Err("no file that this Apus writes: neither its name nor its first bytes are known".to_owned()),
    }
}

fn message<M: Message + Default>(magic: [u8; 8], bytes: &[u8]) -> Result<M, String> {
    let body = unseal(magic, bytes).map_err(|what| format!("it {what}"))?;
    M::decode(body).map_err(|e| format!("it does not decode, though its hash is right: {e}"))
}

fn list<T>(all: impl IntoIterator<Item = T>, each: impl Fn(T) -> String) -> String {
    let all: Vec<String> = all.into_iter().map(each).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
fn log_name(control: &Control) -> String {
    let id = control.id;
    format!("redo log {} of node {} in cluster {:x}", id.instance, id.node.0, id.cluster)
}

// ---- redo

fn control(control: &Control, report: &mut Report) -> String {
    report.line(format_args!(
        "segments of {} bytes: {}",
        control.segment_bytes,
        list(&control.segments, u32::to_string)
    ));
    report.line(format_args!(
        "complete from {}",
        control.complete.map_or("no epoch yet".to_owned(), |e| format!("epoch {}", e.0))
    ));
    if let Some((epoch, lineage)) = control.base {
        report.line(format_args!("amid being filled: had put back epoch {epoch} of lineage {lineage:x}"));
    }
    report.line(format_args!("read from segment {} byte {} on", control.start.segment, control.start.at));
    for Checkpoint { file, turn, epoch, bytes, sequence, .. } in &control.checkpoints {
        report.line(format_args!(
            "checkpoint {file}, turn {turn}: up to epoch {epoch}, {sequence} blocks, {bytes} bytes"
        ));
    }
    let void = list(&control.void, |(from, to)| format!("{} up to below {}", from.0, to.0));
    report.line(format_args!("epochs that were given up: {void}"));
    for file in control.segments.iter().copied().chain(control.checkpoints.iter().map(|c| c.file)) {
        if control.keys.only(file) != Keys::default() {
            report.line(format_args!("file {file}{}", encrypted(control, file)));
        }
    }
    format!("control file of {}, {} segments; whole", log_name(control), control.segments.len())
}

/// Of the directory that the file is in.
fn layout_beside(path: &Path) -> Option<Layout> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Layout::current(names.iter().map(String::as_str), 0)
}

/// What is said of a control file that is whole.
fn judged(path: &Path, name: &str, read: &Control, report: &mut Report) -> String {
    let text = control(read, report);
    let layout = Layout::parse(name).map(|(layout, _)| layout);
    match layout_beside(path).filter(|counts| layout.is_some_and(|of| of.change != counts.change)) {
        Some(Layout { workers, .. }) => format!("{text}, but nothing in it counts: the logs of {workers} workers do"),
        None => text,
    }
}

fn control_beside(path: &Path, file: DataFile, report: &mut Report) -> Result<Control, String> {
    let name = layout_beside(path).unwrap_or_default().control_file(file.instance);
    let beside = path.with_file_name(&name);
    let content = read(&beside).map_err(|e| format!("nothing can be said of it without its control file: {e}"))?;
    let mark = report.text.len();
    let control =
        report.control(&name, &content).map_err(|what| format!("of its control file {}: {what}", beside.display()));
    report.text.truncate(mark); // that was about the other file
    control
}

/// From where on the file with this number is encrypted, or not any more.
fn encrypted(control: &Control, number: u32) -> String {
    let only = control.keys.only(number);
    let word = |key: Option<&FileKey>| if key.is_some() { "encrypted" } else { "in the clear" };
    let parts =
        list(
            only.all(),
            |((_, from), key)| {
                if from == 0 { word(key).to_owned() } else { format!("{} from byte {from} on", word(key)) }
            },
        );
    if only == Keys::default() { String::new() } else { format!(", {parts}") }
}

fn checkpoint(path: &Path, file: DataFile, bytes: &[u8], report: &mut Report) -> Result<String, String> {
    let control = control_beside(path, file, report)?;
    let name = format!("checkpoint {} of {}{}", file.number, log_name(&control), encrypted(&control, file.number));
    let Some(listed) = control.checkpoints.iter().find(|listed| listed.file == file.number) else {
        return Ok(format!("{name}; the control file does not list it: nothing in it counts"));
    };
    let mut walk = Walk { bytes, at: 0, blocks: 0, entries: 0, epochs: None, rows: Ok(()) };
    let mut reader = Reader::new(&control.of_checkpoint(file.number), 0);
    loop {
        let mark = report.text.len();
        match reader.step() {
            Step::Read { at, count, .. } => {
                let rest = bytes.get(at as usize..).unwrap_or_default();
                reader.feed(file.number, at, count, &rest[..rest.len().min(count as usize)]);
            }
            Step::Entry(entry) => walk.entry(&entry, report),
            Step::Ended => break,
            Step::Damaged(damage) => return Err(format!("{}; {name}", damage.reason)),
        }
        let text = report.text.split_off(mark);
        walk.blocks_to(reader.place().1, report);
        report.text.push_str(&text);
    }
    let (end, summary) = (reader.end(), walk.summary());
    if (end.at, end.sequence, end.previous) != (listed.bytes, listed.sequence, listed.checksum) {
        return Err(format!("it ends at byte {} of {}; {summary}; {name}", end.at, listed.bytes));
    }
    walk.rows.clone()?;
    Ok(format!("{summary}; {name}, up to epoch {}; whole", listed.epoch))
}

fn segment(path: &Path, file: DataFile, bytes: &[u8], report: &mut Report) -> Result<String, String> {
    let control = control_beside(path, file, report)?;
    let Some(place) = control.segments.iter().position(|number| *number == file.number) else {
        return Ok(format!("{}; the control file does not list it: nothing in it counts", log_name(&control)));
    };
    // With what is behind it: that tells whether its end is missing.
    let log = Control { segments: control.segments[place..].to_vec(), ..control.clone() };
    let mut reader = Reader::new(&log, 0);
    let begin = reader.place().1 as usize;
    let mut walk = Walk { bytes, at: begin, blocks: 0, entries: 0, epochs: None, rows: Ok(()) };
    let mut end = 0;
    let damage = loop {
        let (mark, entries) = (report.text.len(), walk.entries);
        match reader.step() {
            Step::Read { segment, at, count } => {
                let piece = piece(path, DataFile { number: segment, ..file }, at, count);
                reader.feed(segment, at, count, &piece);
            }
            Step::Entry(entry) => walk.entry(&entry, report),
            Step::Ended => break None,
            Step::Damaged(damage) => break Some(damage),
        }
        let (index, at) = reader.place();
        if index > 0 {
            // The entry, if it was one, is the next segment's.
            report.text.truncate(mark);
            walk.entries = entries;
            break None;
        }
        end = at;
        // Heads of blocks before what is in them.
        let text = report.text.split_off(mark);
        walk.blocks_to(end, report);
        report.text.push_str(&text);
    };
    let summary = format!(
        "{}; {}, segment {} of {}{}",
        walk.summary(),
        log_name(&control),
        place + 1,
        control.segments.len(),
        encrypted(&control, file.number)
    );
    if let Some(damage) = damage {
        return Err(format!("at byte {end}, after epoch {}: {}; {summary}", damage.epoch.0, damage.reason));
    }
    walk.rows.clone()?;
    let rest = &bytes[(end as usize).min(bytes.len())..];
    if rest.iter().any(|b| *b != 0) {
        report.line(format_args!("from byte {end} on: what was never synced, {} bytes", rest.len()));
    }
    Ok(format!("{summary}; whole"))
}

/// Of a segment that lies beside this one, or of this; nothing where there is none.
fn piece(path: &Path, file: DataFile, at: u64, count: u32) -> Vec<u8> {
    let mut piece = Vec::new();
    let read = fs::File::open(path.with_file_name(file.to_string())).and_then(|mut file| {
        file.seek(io::SeekFrom::Start(at))?;
        file.take(count.into()).read_to_end(&mut piece)
    });
    read.map_or(Vec::new(), |_| piece)
}

/// Through the blocks of a segment, beside the reader that gives its entries.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    blocks: u64,
    entries: u64,
    epochs: Option<(Epoch, Epoch)>,
    /// The first entry whose rows do not decode.
    rows: Result<(), String>,
}

impl Walk<'_> {
    fn summary(&self) -> String {
        let epochs = self.epochs.map_or(String::new(), |(from, to)| format!(", epochs {} to {}", from.0, to.0));
        format!("{} blocks, {} entries{epochs}", self.blocks, self.entries)
    }
    /// Prints the heads of the blocks before this place, which the reader has found whole.
    fn blocks_to(&mut self, place: u64, report: &mut Report) {
        while (self.at as u64) < place
            && let Some(head) = self.bytes.get(self.at..)
            && let Ok((payload, sequence, synced, epoch)) = head_of(head)
        {
            let bytes = (HEAD_BYTES + payload).next_multiple_of(BLOCK_ALIGN);
            report.line(format_args!(
                "block {sequence} at byte {}: {bytes} bytes, payload {payload}, epoch {}, synced up to {synced}",
                self.at, epoch.0
            ));
            self.epochs = Some((self.epochs.map_or(epoch, |(from, _)| from), epoch));
            (self.blocks, self.at) = (self.blocks + 1, self.at + bytes);
        }
    }
    fn entry(&mut self, entry: &Entry<'_>, report: &mut Report) {
        self.entries += 1;
        match *entry {
            Entry::Prepare { trans, chain, savepoint, count, rows } => {
                let (chain, bytes) = (nodes(chain), rows.len());
                report.line(format_args!(
                    "  prepare {trans} chain {chain} savepoint {savepoint}: {count} rows, {bytes} bytes"
                ));
                self.prepared(count, rows, report);
            }
            Entry::Commit { trans, chain, epoch } => {
                report.line(format_args!("  commit {trans} chain {} epoch {}", nodes(chain), epoch.0));
            }
            Entry::Abort { trans, chain, savepoint } => {
                report.line(format_args!("  abort {trans} chain {} from savepoint {savepoint}", nodes(chain)));
            }
            Entry::Copied { partition, table, count, rows } => {
                report.line(format_args!(
                    "  copied: table {table} partition {partition}: {count} rows, {} bytes",
                    rows.len()
                ));
                self.copied(table, count, rows, report);
            }
            Entry::Saved { epoch, lineage, generation } => {
                report.line(format_args!("  saved: epoch {} in view {generation} of founding {lineage}", epoch.0));
            }
            Entry::Restart { restored, begins } => {
                let (restored, begins) = (restored.0, begins.0);
                report.line(format_args!("  restart: restored up to epoch {restored}, goes on with {begins}"));
            }
            Entry::Fragment { partition, table, pages } => {
                report.line(format_args!("  fragment: table {table} partition {partition}: {pages} pages"));
            }
            Entry::Page { partition, table, page } => {
                report.line(format_args!("  page {page} of table {table} partition {partition}"));
            }
            Entry::Commits { ids } => report.line(format_args!("  commits: {}", Entry::commits(ids).count())),
        }
    }
    fn prepared(&mut self, count: u16, rows: &[u8], report: &mut Report) {
        let mut r = Bytes::new(rows);
        for _ in 0..count {
            let Ok(row) = PreparedRow::decode(&mut r) else { return self.bad_rows() };
            let PreparedRow { partition, table, schema_version, row, key, image } = row;
            let what = image.map_or("deleted".to_owned(), |image| format!("{} bytes", image.len()));
            if report.rows {
                let key = hex(key);
                report.line(format_args!(
                    "    table {table} version {schema_version} partition {partition} row {row} key {key}: {what}"
                ));
            }
        }
    }
    fn copied(&mut self, table: TableId, count: u16, rows: &[u8], report: &mut Report) {
        let mut r = Bytes::new(rows);
        for _ in 0..count {
            let Ok(CopiedRow { epoch, row, key, image }) = CopiedRow::decode(&mut r) else { return self.bad_rows() };
            if report.rows {
                let (key, bytes) = (hex(key), image.len());
                report.line(format_args!("    table {table} row {row} key {key} epoch {}: {bytes} bytes", epoch.0));
            }
        }
    }
    fn bad_rows(&mut self) {
        let what = format!("rows of entry {} do not decode, though its block is whole", self.entries);
        self.rows = self.rows.clone().and(Err(what));
    }
}

/// Of a block's header, as in `apus_redo`.
const HEAD_BYTES: usize = 64;

/// Payload, sequence, synced, epoch.
fn head_of(bytes: &[u8]) -> Result<(usize, u64, u64, Epoch), DecodeError> {
    let mut r = Bytes::new(bytes);
    r.bytes(8)?;
    let payload = r.u32()? as usize;
    r.u32()?;
    Ok((payload, r.u64()?, r.u64()?, r.epoch()?))
}

fn nodes(chain: Chain) -> String {
    list(chain.nodes(), |node: NodeId| node.0.to_string())
}
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

// ---- small files

fn view(what: &str, view: Option<&View>, report: &mut Report) {
    let Some(view) = view else { return report.line(format_args!("{what}: none")) };
    report.line(format_args!(
        "{what}: generation {} of cluster {:x}, president {}, {} partitions, {} workers",
        view.generation,
        view.cluster,
        view.president,
        view.chains.len(),
        view.instances
    ));
    for node in &view.nodes {
        let (id, state, group) = (node.id, node.state(), node.group);
        report.line(format_args!(
            "  node {id} group {group} {state:?} incarnation {} {}",
            node.incarnation, node.address
        ));
    }
}

fn view_file(acceptor: &Acceptor, report: &mut Report) -> String {
    let Acceptor { node, incarnation, boot, committed, promised, prepared, prepared_ballot, gives_way, .. } = acceptor;
    report.line(format_args!("incarnation {incarnation}, machine boot {boot}"));
    view("committed view", committed.as_ref(), report);
    report.line(format_args!("promised ballot {promised}"));
    view(&format!("accepted with ballot {prepared_ballot}"), prepared.as_ref(), report);
    if gives_way.is_some() {
        view("gives way to those that go on in", gives_way.as_ref(), report);
    }
    let generation = committed.as_ref().map_or(0, |view| view.generation);
    format!("view of data node {node}, generation {generation}; whole")
}

fn arbitrator(promise: &Promise, report: &mut Report) -> String {
    let Promise { cluster, node, identity, lineage, generation, fenced, founded, given_up, without_fenced, .. } =
        promise;
    report.line(format_args!("arbitrator {identity} of cluster {cluster:x}"));
    let each = |i: &Incarnation| format!("node {} (incarnation {})", i.node, i.incarnation);
    let fenced = list(fenced, each);
    let where_to = if *without_fenced { ", in a view without them" } else { "" };
    report.line(format_args!(
        "from view {generation} of founding {lineage} somebody was let go on without: {fenced}{where_to}"
    ));
    report.line(format_args!("newest founding {founded}, newest that was given up {given_up}"));
    format!("promises of arbitrating node {node}; whole")
}

fn tables(dictionary: &Dictionary, report: &mut Report) -> String {
    let Dictionary { version, databases, tables, .. } = dictionary;
    databases.iter().for_each(|database| report.line(format_args!("database {}", database.name)));
    tables.iter().for_each(|table| report.line(format_args!("table {} {}.{}", table.id, table.database, table.name)));
    format!("dictionary, version {version}, {} databases, {} tables; whole", databases.len(), tables.len())
}
