//! What a directory's disk takes by each executor of data files: `disk DIRECTORY [SECONDS]`.
//!
//! Appends of 64 KiB to one file and to four, and a sync behind each 4 KiB, as a log does with a commit at a time; medians of three rounds.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use apus_kernel::{DataFile, DiskDone, DiskOp};
use apus_runtime::{Disk, DiskJob, DiskRing};
use apus_signal::{BlockId, BlockRef};
use apus_types::NodeId;

/// Requests of one file under way.
const DEPTH: usize = 16;
/// Files have this size before they are measured, as segments that are written again, and are written in a circle.
const FILE_BYTES: u64 = 16 << 20;

struct Shape {
    name: &'static str,
    files: u32,
    bytes: usize,
    /// A sync behind every so many writes.
    sync_every: u64,
}

/// Microseconds of processor that this process has used, to 10 ms.
fn cpu_micros() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    fields.get(13..15).map_or(0.0, |ticks| ticks.iter().sum::<f64>() * 10_000.0)
}

/// Bytes appended and syncs done per second, and processor time per request.
fn measure(disk: &Disk, mut ring: Option<DiskRing>, shape: &Shape, time: Duration) -> (f64, f64, f64) {
    let cpu_before = cpu_micros();
    let (tell, told) = channel::<DiskDone>();
    let (mut bytes, mut syncs, begun) = (0u64, 0u64, Instant::now());
    thread::scope(|scope| {
        if let Some(ring) = &mut ring {
            let tell = tell.clone();
            scope.spawn(move || ring.run(disk, |_, done| drop(tell.send(done))).expect("the ring works"));
        }
        for _ in 0..disk.threads(shape.files as u8) {
            let tell = tell.clone();
            scope.spawn(move || disk.run(|_, done| drop(tell.send(done))));
        }
        let mut written = vec![0u64; shape.files as usize];
        let mut put = |number: u32, buffer: Vec<u8>| {
            let (file, asker) = (DataFile::redo(0, number), BlockRef::new(NodeId(1), BlockId::Ldm, 0));
            let count = &mut written[number as usize];
            let at = *count * shape.bytes as u64 % FILE_BYTES;
            *count += 1;
            let job = |op| DiskJob { file, op, token: u64::from(number), asker, worker: 0 };
            disk.put(job(DiskOp::Write { at, bytes: buffer }));
            if count.is_multiple_of(shape.sync_every) {
                disk.put(job(DiskOp::Sync));
            }
        };
        for number in 0..shape.files {
            (0..DEPTH.min(shape.sync_every as usize)).for_each(|_| put(number, vec![7; shape.bytes]));
        }
        // A commit at a time: the next write comes when the sync is done.
        let mut buffers = Vec::new();
        while begun.elapsed() < time {
            let done = told.recv().expect("threads answer");
            let number = done.token as u32;
            done.outcome.expect("the disk works");
            match done.op {
                DiskOp::Write { bytes: buffer, .. } => {
                    bytes += buffer.len() as u64;
                    if shape.sync_every > 1 { put(number, buffer) } else { buffers.push(buffer) }
                }
                _ => {
                    syncs += 1;
                    if shape.sync_every == 1 {
                        put(number, buffers.pop().unwrap_or_else(|| vec![7; shape.bytes]));
                    }
                }
            }
        }
        disk.stop();
    });
    let seconds = begun.elapsed().as_secs_f64();
    let requests = bytes as f64 / shape.bytes as f64 + syncs as f64;
    (bytes as f64 / seconds / 1e6, syncs as f64 / seconds, (cpu_micros() - cpu_before) / requests)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory on the disk");
    let time = Duration::from_secs(arguments.next().map_or(3, |seconds| seconds.parse().expect("seconds")));
    let directory = Path::new(&directory).join("apus-disk");
    let shapes = [
        Shape { name: "64 KiB, sync every 16, 1 file", files: 1, bytes: 64 << 10, sync_every: 16 },
        Shape { name: "64 KiB, sync every 16, 4 files", files: 4, bytes: 64 << 10, sync_every: 16 },
        Shape { name: "4 KiB, sync each, 1 file", files: 1, bytes: 4 << 10, sync_every: 1 },
        Shape { name: "4 KiB, sync each, 4 files", files: 4, bytes: 4 << 10, sync_every: 1 },
    ];
    for shape in &shapes {
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..6 {
            std::fs::create_dir_all(&directory).expect("the directory takes files");
            for number in 0..shape.files {
                let file = File::create(directory.join(DataFile::redo(0, number).to_string())).expect("a file");
                (&file).write_all(&vec![1; FILE_BYTES as usize]).expect("there is room");
                file.sync_all().expect("the disk works");
            }
            let (disk, ring) = match round % 2 {
                0 => (Disk::new(&directory), None),
                _ => {
                    let (disk, ring) = Disk::with_ring(&directory);
                    (disk, Some(ring.expect("the kernel gives a ring")))
                }
            };
            rates[round % 2].push(measure(&disk, ring, shape, time));
            std::fs::remove_dir_all(&directory).expect("it is ours");
        }
        for (name, rates) in ["threads", "io_uring"].iter().zip(&mut rates) {
            rates.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (bytes, syncs, cpu) = rates[rates.len() / 2];
            println!(
                "{:32} {name:8} {bytes:8.1} MB/s {syncs:8.0} syncs/s {cpu:6.1} us of processor per request",
                shape.name
            );
        }
    }
}
