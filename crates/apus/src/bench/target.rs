//! The server that a workload over MySQL's protocol runs against: the SQL nodes of the running `apus dev`, or any other server by address.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use super::mysql::{Account, Connection, Failure};
use crate::discover;

#[derive(clap::Args, Clone, Debug)]
pub struct TargetArgs {
    /// Server; default: the SQL nodes of the running `apus dev`, in turn
    #[arg(long)]
    host: Option<String>,
    /// Its port
    #[arg(long, requires = "host", default_value_t = 3306)]
    port: u16,
    #[arg(long, default_value = "root")]
    user: String,
    /// The account's password; seen in the process list, so better in a file
    #[arg(long, conflicts_with = "password_file")]
    password: Option<String>,
    /// File whose first line is the account's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Servers that are one database, and who logs in.
#[derive(Clone, Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    user: String,
    password: String,
}

impl TargetArgs {
    /// # Errors
    /// There is no such host, no cluster runs, or the password's file is not as it must be.
    pub fn find(&self) -> Result<Server, String> {
        let named: Vec<String> = self.host.iter().map(|host| format!("{host}:{}", self.port)).collect();
        let password = match (&self.password, &self.password_file) {
            (Some(password), _) => password.clone(),
            (None, Some(file)) => crate::secret::load_password(file)?,
            (None, None) => String::new(),
        };
        Ok(Server { addresses: sql_nodes(&named)?, user: self.user.clone(), password })
    }
}

impl Server {
    /// The connection of caller number `turn`, in a database if it is named.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn connect(&self, turn: usize, database: Option<&str>, deadline: Duration) -> Result<Connection, Failure> {
        let address = self.addresses[turn % self.addresses.len()];
        let account = Account { user: &self.user, password: &self.password };
        let mut connection = Connection::open(address, account, deadline)?;
        if let Some(database) = database {
            connection.execute(&format!("USE {database}"))?;
        }
        Ok(connection)
    }
}

/// The addresses of SQL nodes: those given, or else all of the running `apus dev`.
///
/// # Errors
/// There is none, or a name is not known.
pub fn sql_nodes(given: &[String]) -> Result<Vec<SocketAddr>, String> {
    let mut names = given.to_vec();
    if names.is_empty() {
        let dev = discover::find_dev()?;
        for node in dev.state["sql"].as_array().into_iter().flatten() {
            names.push(format!("{}:{}", node["host"].as_str().unwrap_or_default(), node["port"]));
        }
    }
    let resolve = |name: &String| {
        let found = name.to_socket_addrs().map_err(|e| format!("{name}: {e}"))?.next();
        found.ok_or_else(|| format!("{name}: no such host"))
    };
    match names.iter().map(resolve).collect::<Result<Vec<_>, String>>()? {
        list if list.is_empty() => Err("there is no SQL node to talk to".to_owned()),
        list => Ok(list),
    }
}
