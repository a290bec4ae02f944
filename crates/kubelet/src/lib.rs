//! kubelet.
