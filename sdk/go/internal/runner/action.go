package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	bindery "kube-bind.io/bindery/sdk/go"
	"kube-bind.io/bindery/sdk/go/internal/golden"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// action is what a case asks for: exactly one of its parts.
type action struct {
	Call      string          `json:"call"`
	List      string          `json:"list"`
	Watch     string          `json:"watch"`
	Events    int             `json:"events"`
	Request   json.RawMessage `json:"request"`
	Bind      *bind           `json:"bind"`
	Manifests *golden.Input   `json:"manifests"`
}

type bind struct {
	Template     string `json:"template"`
	Identity     string `json:"identity"`
	Name         string `json:"name"`
	WaitMs       int64  `json:"waitMs"`
	PatienceMs   *int64 `json:"patienceMs"`
	ValidateOnly bool   `json:"validateOnly"`
}

func (a action) act(ctx context.Context, client *bindery.Client, out *outcome) error {
	switch {
	case a.Call != "":
		return a.call(ctx, client, out)
	case a.List != "":
		return a.list(ctx, client, out)
	case a.Watch != "":
		return a.watch(ctx, client, out)
	case a.Bind != nil:
		return a.Bind.run(ctx, client, out)
	case a.Manifests != nil:
		return render(a.Manifests, out)
	default:
		return errors.New("the case asks for no action of this runner")
	}
}

// call makes a call of any unary method.
func (a action) call(ctx context.Context, client *bindery.Client, out *outcome) error {
	method, err := findMethod(a.Call)
	if err != nil {
		return err
	}
	request, err := newMessage(method.Input())
	if err != nil {
		return err
	}
	if err := a.read(request); err != nil {
		return err
	}
	response, err := newMessage(method.Output())
	if err != nil {
		return err
	}
	// The façade's own method knows a failed request.
	if bind, ok := request.(*pb.CreateBindableResourcesRequestRequest); ok {
		response, err = client.CreateBindableResourcesRequest(ctx, bind)
	} else {
		path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
		err = client.Conn().Invoke(ctx, path, request, response)
	}
	if err != nil {
		return err
	}
	out.OK = messageJSON(response)
	return nil
}

func findMethod(name string) (protoreflect.MethodDescriptor, error) {
	var found protoreflect.MethodDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("kubebind.v1alpha2", func(file protoreflect.FileDescriptor) bool {
		for number := range file.Services().Len() {
			if method := file.Services().Get(number).Methods().ByName(protoreflect.Name(name)); method != nil {
				found = method
				return false
			}
		}
		return true
	})
	if found == nil {
		return nil, fmt.Errorf("there is no method %s", name)
	}
	return found, nil
}

func newMessage(descriptor protoreflect.MessageDescriptor) (proto.Message, error) {
	message, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		return nil, err
	}
	return message.New().Interface(), nil
}

// read reads the request of the action.
func (a action) read(request proto.Message) error {
	if len(a.Request) == 0 || bytes.Equal(a.Request, []byte("null")) {
		return nil
	}
	return protojson.Unmarshal(a.Request, request)
}

func (a action) list(ctx context.Context, client *bindery.Client, out *outcome) error {
	switch a.List {
	case "ListTemplates":
		return list(a, new(pb.ListTemplatesRequest), client.ListTemplates, ctx, out)
	case "ListCollections":
		return list(a, new(pb.ListCollectionsRequest), client.ListCollections, ctx, out)
	case "ListBindableResourcesRequests":
		return list(a, new(pb.ListBindableResourcesRequestsRequest), client.ListBindableResourcesRequests, ctx, out)
	case "ListExports":
		return list(a, new(pb.ListExportsRequest), client.ListExports, ctx, out)
	case "ListContracts":
		return list(a, new(pb.ListContractsRequest), client.ListContracts, ctx, out)
	default:
		return fmt.Errorf("there is no list %s", a.List)
	}
}

func list[Q, T proto.Message](
	a action, request Q, call func(context.Context, Q) iter.Seq2[T, error], ctx context.Context, out *outcome,
) error {
	if err := a.read(request); err != nil {
		return err
	}
	items := []any{}
	for item, err := range call(ctx, request) {
		if err != nil {
			return err
		}
		items = append(items, messageJSON(item))
	}
	out.OK = items
	return nil
}

func (a action) watch(ctx context.Context, client *bindery.Client, out *outcome) error {
	switch a.Watch {
	case "WatchExports":
		return watch(a, new(pb.WatchExportsRequest), client.WatchExports, ctx, out)
	case "WatchContracts":
		return watch(a, new(pb.WatchContractsRequest), client.WatchContracts, ctx, out)
	case "WatchBindableResourcesRequests":
		return watch(a, new(pb.WatchBindableResourcesRequestsRequest), client.WatchBindableResourcesRequests, ctx, out)
	default:
		return fmt.Errorf("there is no watch %s", a.Watch)
	}
}

func watch[Q, T proto.Message](
	a action, request Q, start func(Q) *bindery.Watch[T], ctx context.Context, out *outcome,
) error {
	if err := a.read(request); err != nil {
		return err
	}
	watch, events := start(request), []map[string]any{}
	out.Events = &events
	defer func() {
		token := watch.ResumeToken()
		out.ResumeToken = &token
	}()
	for event, err := range watch.Events(ctx) {
		if err != nil {
			return err
		}
		events = append(events, eventJSON(event))
		if event.Err != nil {
			out.show(event.Err)
		}
		if a.Events > 0 && len(events) >= a.Events {
			return nil
		}
	}
	return nil
}

func eventJSON[T proto.Message](event bindery.WatchEvent[T]) map[string]any {
	switch event.Type {
	case bindery.WatchConnected:
		return map[string]any{"connected": map[string]any{"resumed": event.Resumed}}
	case bindery.WatchSnapshotBegin:
		begin := map[string]any{}
		if event.ResumeRefused {
			begin["refused"] = event.RefusedReason
		}
		return map[string]any{"snapshotBegin": begin}
	case bindery.WatchApplied:
		return map[string]any{"applied": messageJSON(event.Object)}
	case bindery.WatchRemoved:
		return map[string]any{"removed": messageJSON(event.Removed)}
	case bindery.WatchSnapshotComplete:
		return map[string]any{"snapshotComplete": map[string]any{}}
	default:
		end := map[string]any{}
		if event.Err != nil {
			end["error"] = errorJSON(event.Err)
		}
		return map[string]any{"disconnected": end}
	}
}

func (b bind) run(ctx context.Context, client *bindery.Client, out *outcome) error {
	var progress int
	out.Progress = &progress
	request := bindery.BindRequest{
		Template: b.Template, ClusterIdentity: b.Identity, Name: b.Name, Wait: milliseconds(b.WaitMs), ValidateOnly: b.ValidateOnly,
		Progress: func(*pb.BindableResourcesRequest) { progress++ },
	}
	if b.PatienceMs != nil {
		// Zero would be the default.
		request.Patience = max(1, milliseconds(*b.PatienceMs))
	}
	bound, err := client.Bind(ctx, request)
	if err != nil {
		return err
	}
	out.show(bound)
	out.OK = map[string]any{"request": messageJSON(bound.Request), "response": messageJSON(bound.Response)}
	return nil
}

func render(input *golden.Input, out *outcome) error {
	manifests, err := input.Manifests()
	if err != nil {
		return err
	}
	out.show(manifests)
	out.OK, err = golden.Text(manifests)
	return err
}
