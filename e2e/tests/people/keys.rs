//! Keys of issuers: rotation, and algorithms.

use anyhow::{Result, ensure};
use bindery_e2e::{
    browser::Browser,
    issuers::{CLIENT, Issuer, IssuerMake, IssuerSettings, IssuerUser},
    run,
};
use jsonwebtoken::{Algorithm, decode_header};

use crate::oidc::Oidc;

#[test]
fn keys_rotate_with_and_without_the_former_ones() -> Result<()> {
    run(async {
        let (first, second) = tokio::try_join!(started(IssuerMake::ALL[0]), started(IssuerMake::ALL[1]))?;
        let browser = Browser::start(&[first.identity(), second.identity()]).await?;
        for issuer in [first, second] {
            let oidc = Oidc::of(&issuer, CLIENT)?;
            let old = oidc.login(&browser, &user()).await?;
            ensure!(decode_header(&old.id)?.alg == Algorithm::ES256);
            issuer.rotate_keys(true).await?;
            // What was granted before a rotation lasts.
            let new = oidc.refresh(old.refresh()?).await?.map_err(anyhow::Error::msg)?;
            let (old_key, new_key) = (decode_header(&old.id)?.kid, decode_header(&new.id)?.kid);
            ensure!(old_key != new_key, "{} signs with the former key", issuer.make().name());
            oidc.verify(&old.id).await?;
            oidc.verify(&new.id).await?;
            issuer.rotate_keys(false).await?;
            for token in [&old.id, &new.id] {
                ensure!(oidc.verify(token).await.is_err(), "a former key is published");
            }
            let newest = oidc.login(&browser, &user()).await?;
            oidc.verify(&newest.id).await?;
        }
        Ok(())
    })
}

fn user() -> IssuerUser {
    IssuerUser::new("kurt", &[])
}

async fn started(make: IssuerMake) -> Result<Issuer> {
    let settings = IssuerSettings {
        users: vec![user()],
        algorithm: "ES256",
        ..IssuerSettings::default()
    };
    Issuer::start_with(make, settings).await
}
