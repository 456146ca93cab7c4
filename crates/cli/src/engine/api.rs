//! The API that holds the objects of a bootstrap: embedded in this process, or any other cluster's.

use super::folder::{Claim, Folder, Home};
use super::work::{Elsewhere, Reach};
use crate::apiserver::{CONTEXT, install_crds};
use crate::exit::{Ended, Exit};
use anyhow::{Context as _, Result};
use butler_apiserver::{HistoryLimits, Options, Running, Server, User};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Who we are to an API.
pub(crate) const MANAGER: &str = "butleradm";

/// An API that is open.
pub(crate) struct Objects {
    pub(crate) client: Client,
    /// The embedded one, until it is stopped.
    running: Option<Running>,
    /// How kubectl reaches it.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: String,
    /// Held while the API is in use, when this process has claimed it.
    pub(crate) folder: Option<Folder>,
}

impl Objects {
    /// Opens the embedded API in a cluster's folder and serves it on a loopback port.
    async fn embedded(folder: Folder) -> Result<Objects> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("cannot listen on the loopback address")?;
        let options =
            Options { data_dir: folder.api(), hosts: Vec::new(), history: HistoryLimits::default() };
        let server = Server::open(options)
            .await
            .with_context(|| format!("cannot open the state in {}", folder.api().display()))?;
        let service = server.service(User::new(MANAGER, &["system:masters"]));
        install_crds(&service).await?;
        let client = Client::new(service, butler_api::names::SYSTEM_NAMESPACE);
        let running = server.serve(listener)?;
        let kubeconfig = folder.bootstrap_kubeconfig();
        running.write_kubeconfig(&kubeconfig, CONTEXT)?;
        let objects = Objects {
            client,
            running: Some(running),
            kubeconfig: Some(kubeconfig),
            context: CONTEXT.to_owned(),
            folder: Some(folder),
        };
        objects.namespace().await?;
        Ok(objects)
    }

    /// Opens whatever holds a cluster's objects, with our kinds installed.
    pub(crate) async fn open(folder: Folder, elsewhere: Option<&Elsewhere>) -> Result<Objects> {
        let Some(elsewhere) = elsewhere else { return Self::embedded(folder).await };
        let objects = Self::connect(Some(folder), elsewhere).await?;
        apply_crds(&objects.client).await?;
        objects.namespace().await?;
        Ok(objects)
    }

    /// Another cluster's API, as it is.
    async fn connect(folder: Option<Folder>, elsewhere: &Elsewhere) -> Result<Objects> {
        let Elsewhere { kubeconfig, context } = elsewhere;
        Ok(Objects {
            client: client(kubeconfig.as_deref(), context.as_deref()).await?,
            running: None,
            kubeconfig: kubeconfig.clone(),
            context: context.as_deref().unwrap_or("the current context").to_owned(),
            folder,
        })
    }

    /// Whatever holds a cluster's objects, to look at: the running command's API if there is one, else the one in the folder.
    pub(crate) async fn attach(home: &Home, cluster: &str) -> Result<Objects> {
        if let Some(elsewhere) = Reach::kept(&home.folder(cluster))?.objects {
            return Self::connect(None, &elsewhere).await;
        }
        match home.claim(cluster)? {
            Claim::Ours(folder) => Self::embedded(folder).await,
            Claim::Busy(_) => {
                let kubeconfig = Some(home.folder(cluster).join("bootstrap-kubeconfig"));
                let context = Some(CONTEXT.to_owned());
                Self::connect(None, &Elsewhere { kubeconfig, context }).await
            }
        }
    }

    /// Whether the API is in this process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.running.is_some()
    }

    async fn namespace(&self) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let name = butler_api::names::SYSTEM_NAMESPACE;
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        match api.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(|_| ()).with_context(|| format!("cannot make the namespace {name}")),
        }
    }

    /// Ends the embedded API, with everything durable, and gives the folder back.
    pub(crate) async fn stop(self) -> Option<Folder> {
        if let Some(running) = self.running {
            running.stop().await;
            if let Some(path) = &self.kubeconfig {
                // It leads nowhere now; that it is still there would hurt nobody.
                let _ = std::fs::remove_file(path);
            }
        }
        self.folder
    }
}

async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client> {
    let options =
        KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| {
                Ended::error(Exit::NotFound, format!("cannot read {}: {error}", path.display()))
            })?;
            kube::Config::from_custom_kubeconfig(file, &options).await?
        }
        None => kube::Config::from_kubeconfig(&options).await?,
    };
    Client::try_from(config).context("cannot make a client from the kubeconfig")
}

async fn apply_crds(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    for crd in butler_api::crds() {
        let name = crd.name_any();
        api.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("cannot install the custom resource definition {name}"))?;
    }
    for crd in butler_api::crds() {
        let name = crd.name_any();
        let established = kube::runtime::conditions::is_crd_established();
        let wait = kube::runtime::wait::await_condition(api.clone(), &name, established);
        tokio::time::timeout(std::time::Duration::from_secs(60), wait)
            .await
            .with_context(|| format!("the API does not serve {name} after 60 s"))?
            .with_context(|| format!("cannot watch {name}"))?;
    }
    Ok(())
}
