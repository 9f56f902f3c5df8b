//! Survival: programs are killed, clusters go away, tokens expire, calls come twice, replicas take over. Afterwards
//! nothing is lost and nothing is doubled.

mod survival {
    mod calls;
    mod expired_tokens;
    mod killed_konnector;
    mod killed_server;
    mod outage;
    mod picture;
    mod repeated_bind;
    mod replicas;
}
