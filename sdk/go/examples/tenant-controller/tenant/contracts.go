package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

// IndexIdentity is the index of Tenants by the identity of their cluster.
const IndexIdentity = "status.clusterIdentity"

// ByIdentity is the function of [IndexIdentity].
func ByIdentity(object client.Object) []string {
	return []string{object.(*v1alpha1.Tenant).Status.ClusterIdentity}
}

// ContractWatch tells which Tenants to reconcile when the provider has revoked credentials or changed exports. Without it, the
// controller would learn that from the tenants' clusters, when it looks at them the next time.
type ContractWatch struct {
	// Watch of the caller's contracts.
	Watch *bindery.Watch[*pb.Contract]
	// Client lists Tenants by [IndexIdentity].
	Client client.Client
	// Changes gets the Tenants.
	Changes chan<- event.GenericEvent
	Log     logr.Logger

	// seen is what mattered of each contract when it was seen last, by its name.
	seen map[string]string
	// listed are the contracts of a snapshot that is not complete.
	listed map[string]bool
}

// Start watches until the context ends. It runs on the replica that leads.
func (w *ContractWatch) Start(ctx context.Context) error {
	w.seen = map[string]string{}
	for change, err := range w.Watch.Events(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// The controller still looks at each Tenant from time to time.
			w.Log.Error(err, "contracts are not watched any more")
			return nil
		}
		if err := w.handle(ctx, change); err != nil {
			w.Log.Error(err, "cannot tell which tenants a contract belongs to")
		}
	}
	return nil
}

func (w *ContractWatch) handle(ctx context.Context, change bindery.ContractEvent) error {
	switch change.Type {
	case bindery.WatchSnapshotBegin:
		w.listed = map[string]bool{}
	case bindery.WatchApplied:
		contract := change.Object
		if w.listed != nil {
			w.listed[contract.GetName()] = true
		}
		return w.note(ctx, contract)
	case bindery.WatchRemoved:
		delete(w.seen, change.Removed.GetName())
	case bindery.WatchSnapshotComplete:
		maps.DeleteFunc(w.seen, func(name, _ string) bool { return !w.listed[name] })
		w.listed = nil
	case bindery.WatchDisconnected:
		if change.Err != nil {
			w.Log.Info("the watch of contracts broke and is opened again", "reason", change.Err.ReasonString(), "in", change.RetryIn)
		}
	}
	return nil
}

// note enqueues the Tenants of a contract, if something has changed that concerns them. Each heartbeat is a change, too.
func (w *ContractWatch) note(ctx context.Context, contract *pb.Contract) error {
	digest := digestOf(contract)
	before, known := w.seen[contract.GetName()]
	if known && before == digest {
		return nil
	}
	var tenants v1alpha1.TenantList
	if err := w.Client.List(ctx, &tenants, client.MatchingFields{IndexIdentity: contract.GetClusterIdentity()}); err != nil {
		return err
	}
	w.seen[contract.GetName()] = digest
	if !known {
		return nil
	}
	for number := range tenants.Items {
		select {
		case w.Changes <- event.GenericEvent{Object: &tenants.Items[number]}:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// digestOf is what concerns a tenant of a contract: its exports, whether they are ready, and the revocation of its credentials.
func digestOf(contract *pb.Contract) string {
	parts := []string{contract.GetUid(), contract.GetRevocation().GetTime().String()}
	for _, export := range contract.GetExports() {
		parts = append(parts, export.GetName()+export.GetUid()+export.GetReady().GetStatus())
	}
	slices.Sort(parts[2:])
	return fmt.Sprintf("%q", parts)
}
