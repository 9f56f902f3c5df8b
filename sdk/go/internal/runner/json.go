package main

import (
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	bindery "kube-bind.io/bindery/sdk/go"
)

// messageJSON is a message as proto JSON.
func messageJSON(message proto.Message) any {
	text, err := protojson.Marshal(message)
	if err != nil {
		return err.Error()
	}
	return json.RawMessage(text)
}

func errorJSON(err error) map[string]any {
	fields := map[string]any{"kind": "runner", "message": err.Error()}
	var failure *bindery.Error
	var refusal *bindery.Refusal
	var config *bindery.ConfigError
	switch {
	case errors.As(err, &failure):
		fields["kind"] = string(failure.Kind)
		addFailure(fields, failure)
	case errors.As(err, &refusal):
		fields["kind"], fields["reason"] = "refusal", refusal.Reason
	case errors.As(err, &config):
		fields["kind"], fields["reason"] = "config", config.Reason
	}
	return fields
}

func addFailure(fields map[string]any, failure *bindery.Error) {
	switch failure.Kind {
	case bindery.KindStatus:
		fields["code"] = bindery.Code(failure.Code).Error()
		addStatus(fields, failure)
	case bindery.KindTransport:
		fields["fault"] = faultName(failure.Fault)
	case bindery.KindToken, bindery.KindRequestFailed:
		fields["reason"] = failure.ReasonString()
	}
}

func addStatus(fields map[string]any, failure *bindery.Error) {
	if failure.ReasonName != "" {
		fields["reason"] = failure.ReasonName
	}
	if len(failure.Metadata) > 0 {
		fields["metadata"] = failure.Metadata
	}
	var violations, preconditions []map[string]any
	for _, violation := range failure.FieldViolations {
		violations = append(violations, map[string]any{"field": violation.Field, "description": violation.Description})
	}
	for _, violation := range failure.PreconditionViolations {
		preconditions = append(preconditions, map[string]any{
			"kind": violation.Type, "subject": violation.Subject, "description": violation.Description,
		})
	}
	if violations != nil {
		fields["fieldViolations"] = violations
	}
	if preconditions != nil {
		fields["preconditionViolations"] = preconditions
	}
	if failure.RetryAfter != nil {
		fields["retryAfterMs"] = failure.RetryAfter.Milliseconds()
	}
	if failure.RequestID != "" {
		fields["requestId"] = failure.RequestID
	}
}

// faultName is the name of a fault in the cases.
func faultName(fault bindery.Fault) string {
	names := map[bindery.Fault]string{
		bindery.FaultRefused:              "Refused",
		bindery.FaultNameUnknown:          "NameUnknown",
		bindery.FaultConnectTimeout:       "ConnectTimeout",
		bindery.FaultCertificateUntrusted: "CertificateUntrusted",
		bindery.FaultCertificateName:      "CertificateName",
		bindery.FaultCertificateExpired:   "CertificateExpired",
		bindery.FaultClientCertificate:    "ClientCertificate",
		bindery.FaultTLS:                  "Tls",
		bindery.FaultServerIsPlaintext:    "ServerIsPlaintext",
		bindery.FaultNoHTTP2:              "NoHttp2",
		bindery.FaultBroken:               "Broken",
		bindery.FaultSilent:               "Silent",
	}
	return names[fault]
}
