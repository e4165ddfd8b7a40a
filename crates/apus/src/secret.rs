//! The secrets' files: made by `apus secret` and `apus dev`, read by every role.
//!
//! A file is worth what its mode is worth: one that somebody else can read or write is refused, and so is one that belongs to another
//! user (root's may be read by the role that root starts).

use std::{
    io::{Read, Write},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::ExitCode,
};

use apus_auth::{Keys, SECRET_BYTES, Secret, SecretKind};

use crate::disk_key;

#[derive(clap::Args)]
pub struct SecretArgs {
    /// `node`: of data and management nodes; `client`: of SQL nodes, `apus status` and `apus bench`, which nodes hold too; `disk-key`: what data nodes encrypt their files with
    #[arg(value_parser = ["node", "client", "disk-key"])]
    kind: String,
    /// The file to make; one that exists is left as it is
    file: PathBuf,
    /// Put a new disk key before those of a file that exists; then send SIGHUP to the data nodes, whose logs say when the older ones are not needed any more
    #[arg(long)]
    rotate: bool,
}

/// Longest file in bytes that is read as a secret or a password.
pub const FILE_BYTES_MAX: u64 = 4096;

pub fn run(args: &SecretArgs) -> Result<ExitCode, String> {
    if args.kind == "disk-key" {
        disk_key::make(&args.file, args.rotate)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.rotate {
        return Err("--rotate is for disk keys: to change another secret, restart all nodes with a new one".to_owned());
    }
    let kind = if args.kind == "node" { SecretKind::Node } else { SecretKind::Client };
    make(kind, &args.file)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a file with a new secret that only its owner can read.
///
/// # Errors
/// It exists, or the operating system refuses.
pub fn make(kind: SecretKind, path: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot make {}: {e}", path.display());
    let mut bytes = [0u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| format!("no random numbers from the operating system: {e}"))?;
    let text = Secret::from_bytes(bytes).to_text(kind);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| crate::sync_names(path))
        .map_err(failed)
}

/// Reads a file that nobody else can read.
pub fn read_private(path: &Path) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let mut file = std::fs::File::open(path).map_err(failed)?;
    // Of the file that is open, whatever its name means by now.
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
        return Err(format!("{} is no file of at most {FILE_BYTES_MAX} bytes", path.display()));
    }
    if meta.mode() & 0o077 != 0 {
        let (path, mode) = (path.display(), meta.mode() & 0o777);
        return Err(format!("{path} can be read or written by others (mode {mode:03o}); do: chmod 600 {path}"));
    }
    let (owner, user) = (meta.uid(), rustix::process::geteuid().as_raw());
    if owner != user && owner != 0 {
        return Err(format!("{} belongs to user {owner}, and this process runs as user {user}", path.display()));
    }
    let mut text = String::new();
    (&mut file).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Reads a secret's file.
///
/// # Errors
/// It is not there, others can read it, or it holds something else; the text says which.
pub fn load(kind: SecretKind, path: &Path) -> Result<Secret, String> {
    Secret::from_text(kind, &read_private(path)?).map_err(|why| format!("{}: {why}", path.display()))
}

/// Reads a password from the first line of a file under the same rules.
///
/// # Errors
/// As [`load`].
pub fn load_password(path: &Path) -> Result<String, String> {
    let text = read_private(path)?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() { Err(format!("{} holds no password", path.display())) } else { Ok(password.to_owned()) }
}

/// What data and management nodes are given.
#[derive(clap::Args)]
pub struct KeyArgs {
    /// File with the cluster's node secret, as `apus secret node` makes it; without it only on loopback
    #[arg(long, value_name = "FILE", requires = "client_secret")]
    node_secret: Option<PathBuf>,
    /// File with the cluster's client secret, as `apus secret client` makes it
    #[arg(long, value_name = "FILE", requires = "node_secret")]
    client_secret: Option<PathBuf>,
}

impl KeyArgs {
    pub fn load(&self) -> Result<Keys, String> {
        let file = |kind, path: &Option<PathBuf>| path.as_deref().map_or(Ok(Secret::NONE), |path| load(kind, path));
        Ok(Keys {
            node: file(SecretKind::Node, &self.node_secret)?,
            client: file(SecretKind::Client, &self.client_secret)?,
        })
    }
}

/// Refuses to be reached by whoever cannot be told from a node.
///
/// # Errors
/// `address` is not of this machine alone and nothing has to be proven there.
pub fn check_listen(address: SocketAddr, keys: &Keys) -> Result<(), String> {
    if keys.are_set() || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(format!(
        "does not listen on {address} without secrets: whoever reaches it could end the cluster; make them with `apus secret` and give \
         --node-secret FILE --client-secret FILE to every node"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_that_others_can_read_are_refused() {
        let dir = std::env::temp_dir().join(format!("apus-secret-{}", crate::random_id().expect("entropy")));
        std::fs::create_dir(&dir).expect("a directory");
        let path = dir.join("node.secret");
        make(SecretKind::Node, &path).expect("made");
        let secret = load(SecretKind::Node, &path).expect("read");
        assert!(make(SecretKind::Node, &path).expect_err("it exists").contains("exists"));
        assert_eq!(load(SecretKind::Node, &path), Ok(secret), "left as it was");
        assert!(load(SecretKind::Client, &path).expect_err("the other kind").contains("node secret"));
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("own file");
            assert!(load(SecretKind::Node, &path).expect_err("others may").contains("chmod 600"));
        }
        assert!(load(SecretKind::Node, &dir).expect_err("a directory").contains("no file"));
        assert!(load(SecretKind::Node, &dir.join("none")).is_err());
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn only_loopback_is_open_without_secrets() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        for (text, open) in
            [("127.0.0.1:1", true), ("127.8.0.1:1", true), ("[::1]:1", true), ("[::ffff:127.0.0.1]:1", true)]
                .into_iter()
                .chain([("0.0.0.0:1", false), ("[::]:1", false), ("10.0.0.1:1", false)])
        {
            assert_eq!(check_listen(address(text), &Keys::NONE).is_ok(), open, "{text}");
            let set = Keys { node: Secret::from_bytes([1; 32]), client: Secret::from_bytes([2; 32]) };
            assert!(check_listen(address(text), &set).is_ok());
        }
    }
}
