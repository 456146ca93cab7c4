//! What can be wrong on the new cluster: an image that can't be pulled.

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
