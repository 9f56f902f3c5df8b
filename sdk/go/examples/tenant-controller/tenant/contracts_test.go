package tenant

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"

	"kube-bind.io/bindery/sdk/go/examples/tenant-controller/api/v1alpha1"
)

func TestAChangeThatConcernsATenantIsTold(t *testing.T) {
	w := newWorld(t, v1alpha1.UnbindOrphan, cowboys())
	if _, err := w.settle(); err != nil {
		t.Fatal(err)
	}
	changes := make(chan event.GenericEvent, 9)
	watch := &ContractWatch{Client: w.Client, Changes: changes, seen: map[string]string{}}
	contract := func(ready string, beat int64, revoked bool) *pb.Contract {
		made := &pb.Contract{
			Name: "kube-bind-x", ClusterIdentity: "uid-of-acme",
			Exports:   []*pb.ContractExport{{Name: "cowboys", Ready: &pb.Condition{Status: ready}}},
			Konnector: &pb.ContractKonnector{LastHeartbeatTime: &timestamppb.Timestamp{Seconds: beat}},
		}
		if revoked {
			made.Revocation = &pb.ContractRevocation{Time: &timestamppb.Timestamp{Seconds: beat}}
		}
		return made
	}
	other := contract("False", 1, true)
	other.Name, other.ClusterIdentity = "kube-bind-y", "uid-of-another"
	for number, step := range []struct {
		change bindery.ContractEvent
		told   int
	}{
		{bindery.ContractEvent{Type: bindery.WatchSnapshotBegin}, 0},
		{bindery.ContractEvent{Type: bindery.WatchApplied, Object: contract("True", 1, false)}, 0},
		{bindery.ContractEvent{Type: bindery.WatchSnapshotComplete}, 0},
		{bindery.ContractEvent{Type: bindery.WatchApplied, Object: contract("True", 2, false)}, 0},
		{bindery.ContractEvent{Type: bindery.WatchApplied, Object: contract("False", 3, false)}, 1},
		{bindery.ContractEvent{Type: bindery.WatchApplied, Object: contract("False", 4, true)}, 2},
		{bindery.ContractEvent{Type: bindery.WatchApplied, Object: other}, 2},
		{bindery.ContractEvent{Type: bindery.WatchDisconnected}, 2},
	} {
		if err := watch.handle(t.Context(), step.change); err != nil {
			t.Fatal(err)
		}
		if len(changes) != step.told {
			t.Errorf("step %d: %d tenants were told of", number, len(changes))
		}
	}
	if told := <-changes; told.Object.GetName() != "acme" {
		t.Error(told)
	}
}
