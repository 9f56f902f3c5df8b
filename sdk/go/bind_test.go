package bindery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

func TestTheServerWaitsNoLongerThanThePatience(t *testing.T) {
	for name, check := range map[string]struct {
		wait     time.Duration
		patience *time.Duration
		expect   *durationpb.Duration
	}{
		"neither":              {0, nil, nil},
		"a wait":               {20 * time.Second, nil, durationpb.New(20 * time.Second)},
		"no patience":          {20 * time.Second, new(time.Duration(0)), durationpb.New(0)},
		"little patience":      {0, new(10 * time.Second), durationpb.New(10 * time.Second)},
		"more than the server": {0, new(30 * time.Second), nil},
	} {
		request := BindRequest{Template: "cowboys", Wait: check.wait}.message()
		patience := defaultPatience
		if check.patience != nil {
			patience = *check.patience
		}
		sent := withWait(request, patience-time.Microsecond).GetWait()
		if sent.AsDuration() != check.expect.AsDuration() || (sent == nil) != (check.expect == nil) {
			t.Errorf("%s: %v", name, sent)
		}
	}
}

func TestABindOfAWholeRequestIsSentAsItIs(t *testing.T) {
	s := serve(t, nil, func(_ context.Context, _ int, request any) (any, error) {
		sent := request.(*pb.CreateBindableResourcesRequestRequest).GetBindableResourcesRequest()
		return &pb.CreateBindableResourcesRequestResponse{
			BindableResourcesRequest: sent, Response: &pb.BindingResourceResponse{BindingName: "west"},
		}, nil
	})
	request := BindRequest{
		Template: "cowboys", ClusterIdentity: "uid", Name: "west", TTLAfterFinished: time.Hour, ValidateOnly: true,
	}.message()
	bound, err := s.client(t).BindByRequest(t.Context(), request, BindOptions{})
	if err != nil || bound.name != "west" || bound.template != "cowboys" {
		t.Fatal(bound, err)
	}
	sent := s.attempts()[0].request.(*pb.CreateBindableResourcesRequestRequest)
	if sent.GetBindableResourcesRequest().GetSpec().GetTtlAfterFinished().AsDuration() != time.Hour || !sent.GetValidateOnly() {
		t.Error(sent)
	}
}

func TestARequestThatCannotBeEncodedIsTheCallersFault(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) { return nil, nil })
	_, err := s.client(t).GetExport(t.Context(), "", "\xff")
	var config *ConfigError
	if !errors.As(err, &config) || config.Reason != "RequestInvalid" || len(s.attempts()) != 0 {
		t.Error(err)
	}
	for _, err := range s.client(t).WatchExports(&pb.WatchExportsRequest{Contract: "\xff"}).Events(t.Context()) {
		if !errors.As(err, &config) {
			t.Error(err)
		}
	}
}

func TestAWatchThatIsTooLargeEnds(t *testing.T) {
	request := &pb.WatchExportsRequest{Contract: strings.Repeat("x", MessageSendMax)}
	for _, err := range (&script{}).client().WatchExports(request).Events(t.Context()) {
		if !isTooLarge(err) {
			t.Error(err)
		}
	}
}

func TestRequestsUpToTheLimitAreSent(t *testing.T) {
	s := serve(t, nil, func(context.Context, int, any) (any, error) {
		return &pb.GetExportResponse{Export: &pb.Export{}}, nil
	})
	const overhead = 4 // Tag and length of the field.
	client := s.client(t)
	if _, err := client.GetExport(t.Context(), "", strings.Repeat("x", MessageSendMax-overhead)); err != nil {
		t.Error(err)
	}
	if _, err := client.GetExport(t.Context(), "", strings.Repeat("x", MessageSendMax-overhead+1)); !isTooLarge(err) {
		t.Error(err)
	}
}

func TestPagesThatGoRoundAreFound(t *testing.T) {
	s := pageServer(t, page("1", "a"), page("2", "b"), page("3", "c"), page("1", "d"))
	_, err := Collect(s.client(t).ListTemplates(t.Context(), nil))
	if err == nil || !strings.Contains(err.Error(), "go round") || len(s.attempts()) != 4 {
		t.Errorf("%d calls, %v", len(s.attempts()), err)
	}
}

func TestEachTypedMethodReturnsWhatItSays(t *testing.T) {
	s := serve(t, nil, func(_ context.Context, _ int, request any) (any, error) {
		switch request := request.(type) {
		case *pb.GetTemplateRequest:
			return &pb.GetTemplateResponse{
				Template: &pb.Template{Metadata: &pb.ObjectMeta{Name: request.GetName()}}, Schemas: []*pb.TemplateSchema{{}, {}},
			}, nil
		case *pb.RenewKubeconfigRequest:
			return &pb.RenewKubeconfigResponse{
				Contract: request.GetContract(), Kubeconfig: &pb.Kubeconfig{Kubeconfig: []byte("hunter2"), CredentialId: "c1"},
			}, nil
		default:
			return nil, errors.New("not expected")
		}
	})
	client := s.client(t)
	details, err := client.GetTemplate(t.Context(), "cowboys")
	if err != nil || details.Template.GetMetadata().GetName() != "cowboys" || len(details.Schemas) != 2 {
		t.Error(details, err)
	}
	renewed, err := client.RenewKubeconfig(t.Context(), "contract-a")
	if err != nil || renewed.Contract != "contract-a" || string(renewed.Kubeconfig.Bytes()) != "hunter2" ||
		renewed.Credential.GetCredentialId() != "c1" || strings.Contains(renewed.Credential.String(), "hunter2") {
		t.Error(fmt.Sprint(renewed), err)
	}
}
