//! A user with a home of their own, and a data centre as a process of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A home of its own, and a command line that knows nothing of the tester's environment.
pub(crate) struct User {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) variables: Vec<(String, String)>,
}

impl User {
    pub(crate) fn new() -> User {
        User { dir: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_butleradm"));
        command.args(args).current_dir(self.dir.path()).env_clear().env("BUTLER_HOME", self.home());
        command.env("TMPDIR", self.dir.path()).env("HOME", self.dir.path());
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// A file in the user's folder.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// A process that is ended when dropped.
pub(crate) struct DataCentre(pub(crate) Child);

impl DataCentre {
    /// Starts one for a file, and lets the user export what it says.
    pub(crate) fn start(user: &mut User, file: &str) -> DataCentre {
        let said = user.dir.path().join("said");
        let mut child = user
            .command(&["sim", "datacentre", "--config", file, "--ca", "ca.crt", "--bundle", "bundle.yaml"])
            .stdout(Stdio::piped())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = fs::read_to_string(said).unwrap();
        assert!(line.starts_with("ready http://"), "not ready: {line:?} {said}");
        let exports = said.lines().filter_map(|line| line.trim().strip_prefix("export "));
        let pairs = exports.flat_map(str::split_whitespace).filter_map(|pair| pair.split_once('='));
        user.variables
            .extend(pairs.map(|(key, value)| (key.to_owned(), value.trim_matches('\'').to_owned())));
        DataCentre(child)
    }
}

impl Drop for DataCentre {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).display().to_string()
}
