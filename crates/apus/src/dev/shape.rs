//! What a directory of `apus dev --dir` holds: the shape of the cluster, which its data is cut to, and how many workers serve it. It is written when the cluster is founded and read when it
//! is started again; with another number of workers it is written again.

use std::path::Path;

use serde_json::{Value, json};

/// The file in the directory.
const FILE: &str = "shape.json";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    pub cluster: u64,
    pub data_nodes: u16,
    pub replicas: u16,
    pub mgmt_nodes: u16,
    pub workers: u8,
}

/// As the command line has it; what is not given may be anything.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub data_nodes: Option<u16>,
    pub replicas: Option<u16>,
    pub mgmt_nodes: Option<u16>,
    pub workers: Option<u8>,
}

impl Shape {
    fn to_json(self) -> String {
        let Shape { cluster, data_nodes, replicas, mgmt_nodes, workers } = self;
        let value = json!({"version": 1, "cluster": format!("{cluster:016x}"), "data_nodes": data_nodes, "replicas": replicas,
            "mgmt_nodes": mgmt_nodes, "workers": workers});
        format!("{value:#}\n")
    }
    fn from_json(text: &str) -> Option<Shape> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |name: &str| value[name].as_u64();
        if number("version") != Some(1) {
            return None;
        }
        Some(Shape {
            cluster: u64::from_str_radix(value["cluster"].as_str()?, 16).ok().filter(|id| *id != 0)?,
            data_nodes: number("data_nodes")?.try_into().ok()?,
            replicas: number("replicas")?.try_into().ok().filter(|n| *n > 0)?,
            mgmt_nodes: number("mgmt_nodes")?.try_into().ok().filter(|n| *n > 0)?,
            workers: number("workers")?.try_into().ok().filter(|n| *n > 0)?,
        })
    }

    /// Of the cluster in the directory; `None`: there is none yet.
    ///
    /// # Errors
    /// The file cannot be read, or says something else than the command line.
    pub fn read(dir: &Path, wanted: Wanted) -> Result<Option<Shape>, String> {
        let path = dir.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        let shape = Shape::from_json(&text).ok_or(format!("{} is not what `apus dev --dir` writes", path.display()))?;
        let asked = [
            ("--data-nodes", wanted.data_nodes.map(u64::from), u64::from(shape.data_nodes)),
            ("--replicas", wanted.replicas.map(u64::from), u64::from(shape.replicas)),
            ("--mgmt-nodes", wanted.mgmt_nodes.map(u64::from), u64::from(shape.mgmt_nodes)),
        ];
        match asked.iter().find(|(_, asked, is)| asked.is_some_and(|n| n != *is)) {
            Some((name, _, is)) => Err(format!(
                "{} holds a cluster with {name}={is}, and that cannot be changed: leave the option out, or name another directory",
                dir.display()
            )),
            // The data is cut to partitions; how many threads serve them may be another number each time.
            None => Ok(Some(Shape { workers: wanted.workers.unwrap_or(shape.workers), ..shape })),
        }
    }

    pub fn write(self, dir: &Path) -> Result<(), String> {
        crate::write_whole(&dir.join(FILE), &self.to_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_shape() {
        let shape = Shape { cluster: 0xabc, data_nodes: 4, replicas: 2, mgmt_nodes: 1, workers: 3 };
        assert_eq!(Shape::from_json(&shape.to_json()), Some(shape));
        assert_eq!(Shape::from_json("{}"), None);
        let dir = std::env::temp_dir().join(format!("apus-shape-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("there is room");
        let any = Wanted { data_nodes: None, replicas: None, mgmt_nodes: None, workers: None };
        assert_eq!(Shape::read(&dir, any), Ok(None));
        shape.write(&dir).expect("there is room");
        assert_eq!(Shape::read(&dir, Wanted { data_nodes: Some(4), ..any }), Ok(Some(shape)));
        let refused = Shape::read(&dir, Wanted { data_nodes: Some(2), ..any }).unwrap_err();
        assert!(refused.contains("--data-nodes=4"), "{refused}");
        let more = Shape::read(&dir, Wanted { workers: Some(5), ..any });
        assert_eq!(more, Ok(Some(Shape { workers: 5, ..shape })), "these may change");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
