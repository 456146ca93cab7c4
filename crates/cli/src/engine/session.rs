//! One run of a bootstrap from the first word to the last.

use super::api::Objects;
use super::changes::Made;
use super::drive::{Goal, Outcome, drive};
use super::folder::Home;
use super::keep::{Kept, keep, keep_talosconfig};
use super::preflight;
use super::put::put;
use super::signals::Signals;
use super::work::{Reach, Workers};
use crate::config::Settings;
use crate::exit::Exit;
use crate::progress::{Obstacle, OutputFormat, Speaker, Turn};
use crate::recorder::{Journal, Redactor};
use anyhow::Result;
use butler_api::ClusterBootstrap;
use butler_controllers::addons::Sources;
use butler_drivers::{SharedRecorder, Verdict};
use kube::ResourceExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Everything that a run needs.
pub(crate) struct Session<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) home: &'a Home,
    /// Also says where the objects are.
    pub(crate) reach: Reach,
    pub(crate) sources: Arc<dyn Sources>,
    pub(crate) output: OutputFormat,
    pub(crate) timeout: Option<Duration>,
    pub(crate) simulated: bool,
    /// Look at the infrastructure before anything is made.
    pub(crate) preflight: bool,
    /// The folder goes when the command ends.
    pub(crate) passing: bool,
    /// Leave the API serving after success, until Ctrl-C.
    pub(crate) skip_cleanup: bool,
    /// What to type to go on.
    pub(crate) again: String,
}

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    /// The ways in, after success.
    pub(crate) kept: Option<Kept>,
}

impl Session<'_> {
    /// Runs until the cluster is ready, or something ends the run before.
    pub(crate) async fn run(&self, signals: &Signals) -> Result<Ran> {
        let began = Instant::now();
        let cluster = self.settings.cluster();
        let folder = self.home.open(cluster)?;
        let reach = self.reach.settle(&folder)?;
        reach.keep(&folder)?;
        let redactor = Redactor::of(&self.settings.credentials, reach.proxy.as_deref());
        let journal = Arc::new(Journal::open(&folder.journal(), redactor)?);
        let mut speaker = Speaker::new(self.output, Some(journal.clone()));
        self.greet(&mut speaker);
        let holder = reach.holder(&folder.path());
        let objects = Objects::open(folder, reach.objects.as_ref()).await?;
        let put = put(&objects.client, self.settings).await?;
        self.explain(&objects, &speaker);
        if self.preflight && !self.look(&put, &journal, &mut speaker, began).await {
            objects.stop().await;
            speaker.finish();
            return Ok(Ran { exit: Exit::Failed, kept: None });
        }
        let context = reach.context(objects.client.clone(), &journal, self.sources.clone())?;
        let mut workers = Workers::start(context, cluster, holder);
        let early = keep_talosconfig(&objects.client, cluster, self.home, self.reach.proxy.as_deref());
        let drive = drive(&mut workers, &mut speaker, Goal::Ready, began, self.timeout, signals);
        let outcome = with_help(drive, early).await;
        let ran = self.end(outcome, &objects, &mut speaker, began).await;
        if self.skip_cleanup && ran.as_ref().is_ok_and(|ran| ran.exit == Exit::Ok) && objects.is_embedded() {
            self.linger(&objects, &speaker, signals).await;
        }
        workers.stop().await;
        objects.stop().await;
        speaker.finish();
        ran
    }

    fn greet(&self, speaker: &mut Speaker) {
        let spec = &self.settings.bootstrap.spec;
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        speaker.tell(
            &Turn::Start {
                cluster: self.settings.cluster().to_owned(),
                provider: self.settings.provider.to_string(),
                control_planes: count(spec.control_plane_count()),
                workers: count(spec.effective_workers().map_or(0, |pool| pool.replicas)),
                simulated: self.simulated,
            },
            Duration::ZERO,
        );
    }

    /// Whether the infrastructure has what it takes. Says what is not as it should be.
    async fn look(
        &self,
        bootstrap: &ClusterBootstrap,
        journal: &Arc<Journal>,
        speaker: &mut Speaker,
        began: Instant,
    ) -> bool {
        let recorder: SharedRecorder = journal.clone();
        let connection = self.reach.connection(&recorder);
        let findings = preflight::look(self.settings, bootstrap.uid(), &connection).await;
        let made = Made::of(bootstrap);
        for finding in &findings {
            let verdict = if finding.verdict == Verdict::Fail { "FAIL" } else { "WARN" };
            let (check, detail) = (finding.check.clone(), finding.detail.clone());
            let (verdict, remedy) = (verdict.to_owned(), finding.remedy.clone());
            speaker.tell(&Turn::Check { check, verdict, detail, remedy }, began.elapsed());
        }
        let stops = findings.iter().filter(|finding| preflight::stops(finding, made)).count();
        if stops > 0 {
            let why = match stops {
                1 => "a check of the infrastructure failed; nothing was touched".to_owned(),
                more => format!("{more} checks of the infrastructure failed; nothing was touched"),
            };
            self.stopped(speaker, began, why, None);
        }
        stops == 0
    }

    /// Where things are meanwhile.
    fn explain(&self, objects: &Objects, speaker: &Speaker) {
        let folder = self.folder();
        speaker.note(&match self.passing {
            true => "Ctrl-C stops; nothing is kept, --keep leaves everything to look at".to_owned(),
            false => format!("state is kept in {folder}; Ctrl-C stops, the same command goes on"),
        });
        if let Some(kubeconfig) = objects.kubeconfig.as_ref().filter(|_| objects.is_embedded()) {
            let kinds = if self.settings.provider.is_on_prem() { "cb,mr" } else { "cb,mr,lbr" };
            speaker.note(&format!(
                "watch it with: kubectl --kubeconfig {} get {kinds} -n butler-system",
                kubeconfig.display()
            ));
        }
    }

    /// Says how it ended, and keeps what came of it.
    async fn end(
        &self,
        outcome: Outcome,
        objects: &Objects,
        speaker: &mut Speaker,
        began: Instant,
    ) -> Result<Ran> {
        let (exit, why, remedy) = match outcome {
            Outcome::Reached(bootstrap) => {
                return self.succeed(bootstrap.as_deref(), objects, speaker, began).await;
            }
            Outcome::Failed { .. } => (Exit::Failed, "the bootstrap has failed".to_owned(), None),
            Outcome::TimedOut(obstacle) => {
                let limit = self.timeout.map(crate::progress::duration).unwrap_or_default();
                let (why, remedy) = not_in_time(&format!("not ready after {limit}"), obstacle);
                (Exit::Timeout, why, remedy)
            }
            Outcome::Interrupted => {
                (Exit::Interrupted, "stopped as asked; nothing is undone".to_owned(), None)
            }
            Outcome::Busy(why) => (Exit::Busy, why, None),
            Outcome::Broken(why) => (Exit::General, why, None),
        };
        self.stopped(speaker, began, why, remedy);
        Ok(Ran { exit, kept: None })
    }

    /// Says that it ends here, and how to go on.
    fn stopped(&self, speaker: &mut Speaker, began: Instant, why: String, remedy: Option<String>) {
        let next = match self.passing {
            true => "nothing of it is kept; --keep leaves everything to look at".to_owned(),
            false => format!("everything is kept in {}; go on with: {}", self.folder(), self.again),
        };
        speaker.tell(&Turn::Stopped { why, remedy, next }, began.elapsed());
    }

    async fn succeed(
        &self,
        bootstrap: Option<&ClusterBootstrap>,
        objects: &Objects,
        speaker: &mut Speaker,
        began: Instant,
    ) -> Result<Ran> {
        let Some(bootstrap) = bootstrap else { return Ok(Ran { exit: Exit::Ok, kept: None }) };
        let proxy = self.reach.proxy.as_deref();
        let kept = keep(&objects.client, bootstrap, self.home, objects.folder.as_ref(), proxy).await?;
        let status = bootstrap.status.clone().unwrap_or_default();
        let done = Turn::Done {
            cluster: self.settings.cluster().to_owned(),
            endpoint: status.control_plane_endpoint.unwrap_or_default(),
            kubeconfig: kept.kubeconfig.display().to_string(),
            talosconfig: kept.talosconfig.display().to_string(),
            console: status.console_url.clone(),
        };
        speaker.finish();
        speaker.tell(&done, began.elapsed());
        for line in self.closing_words(&kept, status.console_url.as_deref()) {
            speaker.note(&line);
        }
        Ok(Ran { exit: Exit::Ok, kept: Some(kept) })
    }

    /// What there is now, and what to type next.
    fn closing_words(&self, kept: &Kept, console: Option<&str>) -> Vec<String> {
        let cluster = self.settings.cluster();
        if self.passing {
            return Vec::new();
        }
        let mut lines = vec![
            String::new(),
            format!("  kubeconfig   {}", kept.kubeconfig.display()),
            format!("  talosconfig  {}", kept.talosconfig.display()),
        ];
        lines.extend(console.map(|url| format!("  console      {url}")));
        if self.simulated {
            return lines;
        }
        lines.extend([
            format!("  state        {} (destroy needs it)", self.folder()),
            String::new(),
            "next:".to_owned(),
            format!("  export KUBECONFIG={}", kept.kubeconfig.display()),
            "  kubectl get nodes".to_owned(),
            format!("  butleradm status {cluster}"),
            format!("  butleradm destroy {cluster}      takes it all down again"),
        ]);
        lines
    }

    fn folder(&self) -> String {
        self.home.folder(self.settings.cluster()).display().to_string()
    }

    /// Leaves the API open for the curious.
    async fn linger(&self, objects: &Objects, speaker: &Speaker, signals: &Signals) {
        let kubeconfig =
            objects.kubeconfig.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        speaker.note("");
        speaker.note(&format!(
            "--skip-cleanup: the bootstrap API keeps serving (context {}) until Ctrl-C; look at it with:",
            objects.context
        ));
        speaker.note(&format!("  kubectl --kubeconfig {kubeconfig} get cb,mr,lbr,secrets -n butler-system"));
        signals.asked().await;
    }
}

/// Does the work, with something beside it that helps while it goes on, and is not worth failing for.
async fn with_help<T>(work: impl Future<Output = T>, help: impl Future<Output = Result<()>>) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        Err(error) = help => tracing::warn!(error = crate::output::chain(&error), "the talosconfig is not kept yet"),
    }
    work.await
}

/// The words for a time that is over: what was in the way, and what to do about it.
pub(crate) fn not_in_time(what: &str, obstacle: Option<Obstacle>) -> (String, Option<String>) {
    match obstacle {
        Some(Obstacle { reason, message, remedy }) => (format!("{what}: {reason}: {message}"), Some(remedy)),
        None => (what.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_over_says_what_was_in_the_way() {
        let obstacle =
            Obstacle { reason: "LoginFailed".into(), message: "401".into(), remedy: "mend the token".into() };
        assert_eq!(
            not_in_time("not ready after 30m", Some(obstacle)),
            ("not ready after 30m: LoginFailed: 401".to_owned(), Some("mend the token".to_owned()))
        );
        assert_eq!(not_in_time("not ready", None), ("not ready".to_owned(), None));
    }
}
