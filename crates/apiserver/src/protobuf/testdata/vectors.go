// Writes objects of all stable built-in kinds as pairs of protobuf and JSON, both made by Kubernetes' own encoders.
//
// Per kind: one with every field set, one with every pointer and list set but all scalars zero, and an empty one. The
// output is the protobuf and the JSON of one object after the other, each after its length in four bytes.
//
//	go run vectors.go crates/apiserver/src/builtin/resources.json | gzip -9n > vectors.gz
//
// It needs k8s.io/{api,apimachinery,apiextensions-apiserver,kube-aggregator} of the release that the tables are made from.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	dra "k8s.io/api/resource/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var scheme = runtime.NewScheme()

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type filler struct {
	zero  bool
	count int64
	open  map[reflect.Type]int
	root  string
}

func (f *filler) text(name string) string {
	if f.zero {
		return ""
	}
	f.count++
	return fmt.Sprintf("%s%d", name, f.count)
}

// Types with a form of their own; false for all others.
func (f *filler) special(v reflect.Value) bool {
	f.count++
	when := time.Unix(1600000000+f.count*1001, 123456000).UTC()
	switch p := v.Addr().Interface().(type) {
	case *meta.Time:
		if !f.zero {
			p.Time = when
		}
	case *meta.MicroTime:
		if !f.zero {
			p.Time = when
		}
	case *resource.Quantity:
		if !f.zero {
			*p = resource.MustParse(fmt.Sprintf("%dMi", f.count))
		}
	case *intstr.IntOrString:
		switch {
		case f.zero:
		case f.count%2 == 0:
			*p = intstr.FromInt32(int32(f.count))
		default:
			*p = intstr.FromString(fmt.Sprintf("%d%%", f.count))
		}
	case *runtime.RawExtension:
		if !f.zero {
			p.Raw = []byte(fmt.Sprintf(`{"apiVersion":"a/v1","kind":"B","c":[%d,null,true]}`, f.count))
		}
	case *meta.FieldsV1:
		check(json.Unmarshal([]byte(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`), p))
	case *apiextensions.JSON:
		p.Raw = []byte(fmt.Sprintf(`{"d":%d}`, f.count))
	case *apiextensions.JSONSchemaPropsOrBool:
		p.Allows = !f.zero
		if f.count%2 == 0 && !f.zero {
			p.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		}
	case *apiextensions.JSONSchemaPropsOrArray:
		if f.count%2 == 0 {
			p.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		} else {
			p.JSONSchemas = []apiextensions.JSONSchemaProps{{Type: "string"}, {}}
		}
	case *apiextensions.JSONSchemaPropsOrStringArray:
		if f.count%2 == 0 {
			p.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		} else {
			p.Property = []string{"a", "b"}
		}
	default:
		f.count--
		return false
	}
	return true
}

func (f *filler) fill(v reflect.Value, name string) {
	if v.Kind() == reflect.Struct && f.special(v) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text(name))
	case reflect.Bool:
		v.SetBool(!f.zero)
	case reflect.Int, reflect.Int32, reflect.Int64:
		if !f.zero {
			f.count++
			v.SetInt(f.count)
			if f.count%7 == 0 {
				v.SetInt(-f.count)
			}
		}
	case reflect.Float64:
		if !f.zero {
			f.count++
			v.SetFloat(float64(f.count) + 0.25)
		}
	case reflect.Pointer:
		if f.open[v.Type().Elem()] > 1 {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), name)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if !f.zero {
				v.SetBytes([]byte(f.text(name) + "\xff\x00"))
			}
			return
		}
		if f.open[v.Type().Elem()] > 1 {
			return
		}
		size := 1
		if v.Type().Elem().Kind() != reflect.Struct {
			size = 2
		}
		v.Set(reflect.MakeSlice(v.Type(), size, size))
		for i := range size {
			f.fill(v.Index(i), name)
		}
	case reflect.Map:
		if f.open[v.Type().Elem()] > 1 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString(f.text("key"))
		value := reflect.New(v.Type().Elem()).Elem()
		f.fill(value, name)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		// Pod templates are alike everywhere; one kind with all of it is enough.
		if v.Type() == reflect.TypeFor[core.PodSpec]() && f.root != "Pod" {
			v.Addr().Interface().(*core.PodSpec).Containers = []core.Container{{Name: "c"}}
			return
		}
		f.open[v.Type()]++
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Type == reflect.TypeFor[meta.TypeMeta]() || !field.IsExported() {
				continue
			}
			f.fill(v.Field(i), strings.ToLower(field.Name))
		}
		f.open[v.Type()]--
	}
}

func main() {
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistration.AddToScheme, apps.AddToScheme, authentication.AddToScheme, authorization.AddToScheme,
		autoscaling.AddToScheme, autoscalingv1.AddToScheme, batch.AddToScheme, certificates.AddToScheme,
		coordination.AddToScheme, core.AddToScheme, discovery.AddToScheme, events.AddToScheme, flowcontrol.AddToScheme,
		networking.AddToScheme, node.AddToScheme, policy.AddToScheme, rbac.AddToScheme, dra.AddToScheme,
		scheduling.AddToScheme, storage.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		check(add(scheme))
	}
	var resources []struct{ Group, Version, Kind string }
	text, err := os.ReadFile(os.Args[1])
	check(err)
	check(json.Unmarshal(text, &resources))
	kinds := []schema.GroupVersionKind{
		{Version: "v1", Kind: "DeleteOptions"}, {Group: "apps", Version: "v1", Kind: "DeleteOptions"},
		{Group: "autoscaling", Version: "v1", Kind: "Scale"}, {Version: "v1", Kind: "Status"},
		{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"},
		{Version: "v1", Kind: "ConfigMapList"},
	}
	for _, r := range resources {
		kinds = append(kinds, schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind})
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	codec := protobuf.NewSerializer(scheme, scheme)
	for _, kind := range kinds {
		for _, variant := range []string{"full", "zero", "empty"} {
			object, err := scheme.New(kind)
			check(err)
			if variant != "empty" {
				f := filler{zero: variant == "zero", open: map[reflect.Type]int{}, root: kind.Kind}
				f.fill(reflect.ValueOf(object).Elem(), "")
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			var bytes strings.Builder
			check(codec.Encode(object, &bytes))
			// What counts is what the server reads.
			back, _, err := codec.Decode([]byte(bytes.String()), nil, nil)
			check(err)
			back.GetObjectKind().SetGroupVersionKind(kind)
			text, err := json.Marshal(back)
			check(err)
			for _, part := range []string{bytes.String(), string(text)} {
				check(binary.Write(out, binary.BigEndian, uint32(len(part))))
				_, err = out.WriteString(part)
				check(err)
			}
		}
	}
}
