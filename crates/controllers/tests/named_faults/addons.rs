//! What can be wrong on the new cluster: an image that can't be pulled, objects that are not taken.

use crate::site::{Site, Size, soon};

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_an_addon_can_not_be_pulled() {
    let mut site = Site::of(Size::One).await;
    site.data_centre.clusters().lose_images("stand-in.invalid/cert-manager");
    site.begin(soon()).await;
    // The failure says what the pod says.
    let (_, remedy) = site.fails_saying("AddonNotReady", &["cert-manager", "pull"]).await;
    assert!(remedy.contains("cert-manager"), "{remedy}");
    site.data_centre.clusters().find_images();
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// Every object of an addon is refused for good: the failure names addon and object, says what to do, and ends with its cause.
async fn refused(code: u16, reason: &'static str, remedy: &str) {
    let mut site = Site::of(Size::One).await;
    site.set_faults(&format!(
        "calls: [{{system: kubernetes, operation: 'PATCH *', object: '*cert-manager*', times: always, fault: status {code}}}]"
    ));
    site.begin(soon()).await;
    let (message, told) = site.fails_saying(reason, &["cert-manager"]).await;
    assert!(message.contains(&format!("({code})")), "{message}");
    assert!(told.contains(remedy), "{told}");
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_an_addon_are_not_taken() {
    refused(422, "ObjectRefused", "addon's version and values").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_an_addon_are_forbidden() {
    refused(403, "ClusterForbids", "rights of an administrator").await;
}
