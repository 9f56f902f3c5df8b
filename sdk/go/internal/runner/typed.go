package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	bindery "kube-bind.io/bindery/sdk/go"
	pb "kube-bind.io/bindery/sdk/go/kubebind/v1alpha2"
)

// typed calls the client's own method for a method of the API, with arguments out of the request.
func (a action) typed(ctx context.Context, client *bindery.Client, out *outcome) (err error) {
	call, ok := typedMethods[a.Typed]
	if !ok {
		inner := a
		inner.List = a.Typed
		return inner.list(ctx, client, out)
	}
	returned, err := call(a, ctx, client, out)
	if err == nil {
		out.OK = returned
	}
	return err
}

type typedMethod func(a action, ctx context.Context, client *bindery.Client, out *outcome) (any, error)

var typedMethods = map[string]typedMethod{
	"GetProvider": func(_ action, ctx context.Context, client *bindery.Client, _ *outcome) (any, error) {
		return object(client.GetProvider(ctx))
	},
	"GetCaller": func(_ action, ctx context.Context, client *bindery.Client, _ *outcome) (any, error) {
		return object(client.GetCaller(ctx))
	},
	"GetTemplate": with(func(ctx context.Context, client *bindery.Client, r *pb.GetTemplateRequest, _ *outcome) (any, error) {
		details, err := client.GetTemplate(ctx, r.GetName())
		if err != nil {
			return nil, err
		}
		return messageJSON(&pb.GetTemplateResponse{Template: details.Template, Schemas: details.Schemas}), nil
	}),
	"GetCollection": with(func(ctx context.Context, client *bindery.Client, r *pb.GetCollectionRequest, _ *outcome) (any, error) {
		return object(client.GetCollection(ctx, r.GetName()))
	}),
	"GetExport": with(func(ctx context.Context, client *bindery.Client, r *pb.GetExportRequest, _ *outcome) (any, error) {
		return object(client.GetExport(ctx, r.GetContract(), r.GetName()))
	}),
	"GetBoundSchema": with(func(ctx context.Context, client *bindery.Client, r *pb.GetBoundSchemaRequest, _ *outcome) (any, error) {
		schema, err := client.GetBoundSchema(ctx, r.GetContract(), r.GetName(), r.GetKnownHash())
		if err == nil && schema == nil {
			return map[string]any{"unchanged": true}, nil
		}
		return object(schema, err)
	}),
	"DeleteExport": with(func(ctx context.Context, client *bindery.Client, r *pb.DeleteExportRequest, _ *outcome) (any, error) {
		return object(client.DeleteExport(ctx, r))
	}),
	"CreateBindableResourcesRequest": with(
		func(ctx context.Context, client *bindery.Client, r *pb.CreateBindableResourcesRequestRequest, out *outcome) (any, error) {
			return object(create(ctx, client, r, out))
		}),
	"GetBindableResourcesRequest": with(
		func(ctx context.Context, client *bindery.Client, r *pb.GetBindableResourcesRequestRequest, _ *outcome) (any, error) {
			return object(client.GetBindableResourcesRequest(ctx, r.GetName(), r.GetClusterIdentity()))
		}),
	"DeleteBindableResourcesRequest": with(
		func(ctx context.Context, client *bindery.Client, r *pb.DeleteBindableResourcesRequestRequest, _ *outcome) (any, error) {
			return map[string]any{}, client.DeleteBindableResourcesRequest(ctx, r)
		}),
	"RenewKubeconfig": with(func(ctx context.Context, client *bindery.Client, r *pb.RenewKubeconfigRequest, out *outcome) (any, error) {
		renewed, err := client.RenewKubeconfig(ctx, r.GetContract())
		if err != nil {
			return nil, err
		}
		out.show(renewed, *renewed)
		credential := proto.CloneOf(renewed.Credential)
		credential.Kubeconfig = renewed.Kubeconfig.Bytes()
		return messageJSON(&pb.RenewKubeconfigResponse{Contract: renewed.Contract, Kubeconfig: credential}), nil
	}),
	"RevokeCredentials": with(func(ctx context.Context, client *bindery.Client, r *pb.RevokeCredentialsRequest, _ *outcome) (any, error) {
		return object(client.RevokeCredentials(ctx, r.GetContract(), r.GetReason()))
	}),
	"GetContract": with(func(ctx context.Context, client *bindery.Client, r *pb.GetContractRequest, _ *outcome) (any, error) {
		return object(client.GetContract(ctx, r.GetContract()))
	}),
	"ShareContract": with(func(ctx context.Context, client *bindery.Client, r *pb.ShareContractRequest, _ *outcome) (any, error) {
		return object(client.ShareContract(ctx, r))
	}),
	"RevokeContract": with(func(ctx context.Context, client *bindery.Client, r *pb.RevokeContractRequest, _ *outcome) (any, error) {
		return object(client.RevokeContract(ctx, r))
	}),
	"UnbindContract": with(func(ctx context.Context, client *bindery.Client, r *pb.UnbindContractRequest, _ *outcome) (any, error) {
		exports, err := client.UnbindContract(ctx, r)
		items := []any{}
		for _, export := range exports {
			items = append(items, messageJSON(export))
		}
		return items, err
	}),
}

// with reads the request of a method out of the action.
func with[Q any, P interface {
	*Q
	proto.Message
}](call func(context.Context, *bindery.Client, P, *outcome) (any, error)) typedMethod {
	return func(a action, ctx context.Context, client *bindery.Client, out *outcome) (any, error) {
		request := P(new(Q))
		if err := a.read(request); err != nil {
			return nil, err
		}
		return call(ctx, client, request, out)
	}
}

// object is a message that a method returned, as proto JSON.
func object[T proto.Message](message T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return messageJSON(message), nil
}

// create makes one call to bind, and returns the whole message.
func create(
	ctx context.Context, client *bindery.Client, request *pb.CreateBindableResourcesRequestRequest, out *outcome,
) (*pb.CreateBindableResourcesRequestResponse, error) {
	bound, err := client.CreateBindableResourcesRequest(ctx, request)
	if err != nil {
		return nil, err
	}
	out.show(bound, *bound)
	return &pb.CreateBindableResourcesRequestResponse{BindableResourcesRequest: bound.Request, Response: whole(bound)}, nil
}

// whole is the response of a bind with its kubeconfig.
func whole(bound *bindery.Bound) *pb.BindingResourceResponse {
	if bound.Response == nil || bound.Response.Kubeconfig == nil {
		return bound.Response
	}
	response := proto.CloneOf(bound.Response)
	response.Kubeconfig.Kubeconfig = bound.Kubeconfig.Bytes()
	return response
}
