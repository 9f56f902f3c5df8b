// The plug-ins of protoc for Go, pinned as tools. Only their binaries are used, so nothing here is imported. Their versions differ from
// those that buf needs.
module bindery/generators

go 1.26.0

tool (
	google.golang.org/grpc/cmd/protoc-gen-go-grpc
	google.golang.org/protobuf/cmd/protoc-gen-go
)

require (
	google.golang.org/grpc/cmd/protoc-gen-go-grpc v1.6.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
