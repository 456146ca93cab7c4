//! The controllers of one run, and how they reach the outside.

use super::folder::Folder;
use super::follow::follow;
use crate::config::Settings;
use crate::exit::{Ended, Exit};
use crate::progress::Snapshot;
use crate::recorder::Journal;
use crate::talos::files;
use anyhow::{Context as _, Result};
use butler_controllers::addons::Sources;
use butler_controllers::{Context, RealInfrastructures, RunError, Scope};
use butler_drivers::{Connection, SharedRecorder};
use kube::Client;
use kube::config::Kubeconfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How everything outside is reached. Kept in the cluster's folder, so that `destroy` goes the same way.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// `http://host:port` of an HTTP CONNECT proxy. May hold a password.
    pub(crate) proxy: Option<String>,
    pub(crate) host_aliases: BTreeMap<String, IpAddr>,
    /// The cluster that the objects are kept in, when it is not the embedded API.
    #[serde(default)]
    pub(crate) objects: Option<Elsewhere>,
}

/// Another cluster's API, as kubectl would reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
}

/// Controllers and follower at work.
pub(crate) struct Workers {
    pub(crate) pictures: watch::Receiver<Snapshot>,
    shutdown: CancellationToken,
    pub(crate) controllers: JoinHandle<Result<(), RunError>>,
    follower: JoinHandle<()>,
}

/// Where the way is written down.
pub(super) const FILE: &str = "reach.json";
/// How long controllers may take to end what they are at.
const GRACE: Duration = Duration::from_secs(20);

impl Reach {
    /// As a bootstrap file says.
    pub(crate) fn of(settings: &Settings) -> Reach {
        Reach { proxy: settings.proxy.clone(), host_aliases: settings.host_aliases.clone(), objects: None }
    }

    /// Goes on with the objects where the bootstrap began, when the command does not say where: anywhere else nothing is known
    /// of them, and the machines would be strangers.
    pub(crate) fn settle(&self, folder: &Folder) -> Result<Reach> {
        let objects = match &self.objects {
            None => Reach::kept(&folder.path())?.objects,
            Some(_) if folder.api().exists() => {
                let text = format!(
                    "this bootstrap was begun without --kubeconfig and --context, its objects are in {}; go on without \
                     them, or destroy it first",
                    folder.api().display()
                );
                return Err(Ended::error(Exit::Usage, text));
            }
            Some(elsewhere) => Some(elsewhere.settle()?),
        };
        Ok(Reach { objects, ..self.clone() })
    }

    /// Who works on objects in another cluster: the same for the same folder, so that a run after a crash goes on at once. The
    /// folder's own lock is enough for the embedded API.
    pub(crate) fn holder(&self, folder: &Path) -> Option<String> {
        self.objects.as_ref()?;
        let host = rustix::system::uname();
        Some(format!("butleradm on {}, {}", host.nodename().to_string_lossy(), folder.display()))
    }

    /// Writes it down.
    pub(crate) fn keep(&self, folder: &Folder) -> Result<()> {
        let path = folder.path().join(FILE);
        files::write_one(&path, &serde_json::to_string(self)?, true)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// What was written down; directly, when nothing was.
    pub(crate) fn kept(folder: &Path) -> Result<Reach> {
        let path = folder.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Reach::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(crate) fn connection(&self, recorder: &SharedRecorder) -> Connection {
        Connection {
            proxy: self.proxy.clone(),
            host_aliases: self.host_aliases.clone(),
            recorder: recorder.clone(),
            ..Connection::default()
        }
    }

    /// Everything that controllers are wired with.
    pub(crate) fn context(
        &self,
        client: Client,
        journal: &Arc<Journal>,
        sources: Arc<dyn Sources>,
    ) -> Result<Context> {
        let proxy =
            self.proxy.as_deref().map(str::parse).transpose().context("the proxy's address is wrong")?;
        let recorder: SharedRecorder = journal.clone();
        let talos = butler_talos::client::Settings { proxy, ..butler_talos::client::Settings::default() };
        Ok(Context {
            client,
            infrastructures: Arc::new(RealInfrastructures(self.connection(&recorder))),
            talos: Arc::new(talos),
            target_proxy: self.proxy.clone(),
            recorder,
            sources,
            clock: Arc::new(jiff::Timestamp::now),
            deadlines: butler_controllers::Deadlines::default(),
        })
    }
}

impl Elsewhere {
    /// With the context by its name: the current one may be another tomorrow.
    fn settle(&self) -> Result<Elsewhere> {
        if self.context.is_some() {
            return Ok(self.clone());
        }
        let (read, shown) = match &self.kubeconfig {
            Some(path) => (Kubeconfig::read_from(path), path.display().to_string()),
            None => (Kubeconfig::read(), "the kubeconfig".to_owned()),
        };
        let file =
            read.map_err(|error| Ended::error(Exit::NotFound, format!("cannot read {shown}: {error}")))?;
        Ok(Elsewhere { context: file.current_context, ..self.clone() })
    }
}

impl Workers {
    /// Starts the controllers for one cluster and follows it. Whatever else the API holds is left alone; with a `holder`, a Lease
    /// keeps other runs away from the cluster meanwhile.
    pub(crate) fn start(context: Context, cluster: &str, holder: Option<String>) -> Workers {
        let (sender, pictures) = watch::channel(Snapshot::default());
        let shutdown = CancellationToken::new();
        let follower = tokio::spawn(follow(context.client.clone(), cluster.to_owned(), sender));
        let scope = Scope::One {
            namespace: butler_api::names::SYSTEM_NAMESPACE.to_owned(),
            name: cluster.to_owned(),
            holder,
        };
        let controllers = tokio::spawn(butler_controllers::run_for(context, scope, shutdown.clone()));
        Workers { pictures, shutdown, controllers, follower }
    }

    /// Lets the controllers end what they are at.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        if tokio::time::timeout(GRACE, &mut self.controllers).await.is_err() {
            tracing::warn!("the controllers did not end in time and are left behind");
            self.controllers.abort();
        }
        self.follower.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Home;

    fn elsewhere(kubeconfig: &Path) -> Reach {
        let objects = Elsewhere { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        Reach { objects: Some(objects), ..Reach::default() }
    }

    #[test]
    fn a_bootstrap_goes_on_where_its_objects_are() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, "current-context: there\n").unwrap();
        let folder = home.open("m").unwrap();
        assert_eq!(Reach::default().settle(&folder).unwrap().objects, None);
        let first = elsewhere(&kubeconfig).settle(&folder).unwrap();
        let objects = first.objects.clone().unwrap();
        assert_eq!(objects.context.as_deref(), Some("there"));
        first.keep(&folder).unwrap();
        assert_eq!(Reach::default().settle(&folder).unwrap().objects, Some(objects));
        let missing = elsewhere(&dir.path().join("none")).settle(&folder).err().unwrap();
        assert_eq!(Exit::of(&missing), Exit::NotFound);
        std::fs::create_dir_all(folder.api()).unwrap();
        let moved = elsewhere(&kubeconfig).settle(&folder).err().unwrap();
        assert_eq!(Exit::of(&moved), Exit::Usage);
    }
}
