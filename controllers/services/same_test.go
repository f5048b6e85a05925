// SPDX-License-Identifier: Apache-2.0

package services

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sealane-io/sealane/api/v1alpha1"
)

// fill sets all that a value has: every list and map has one entry, and every pointer leads somewhere.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k)
		fill(e)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(k, e)
	case reflect.Struct:
		switch v.Addr().Interface().(type) {
		case *metav1.Time:
			v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1e9, 0))))
		case *metav1.MicroTime:
			v.Set(reflect.ValueOf(metav1.NewMicroTime(time.Unix(1e9, 0))))
		default:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		}
	default:
		panic("a kind that the API does not have: " + v.Kind().String())
	}
}

// alter changes one thing after the other of what fill has made, calls do after each, and changes it back.
func alter(v reflect.Value, path string, do func(path string)) {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	set := func(path string, to reflect.Value) {
		v.Set(to)
		do(path)
		v.Set(before)
	}
	switch v.Kind() {
	case reflect.String:
		set(path, reflect.ValueOf("y").Convert(v.Type()))
	case reflect.Bool:
		set(path, reflect.ValueOf(false))
	case reflect.Int, reflect.Int32, reflect.Int64:
		set(path, reflect.ValueOf(2).Convert(v.Type()))
	case reflect.Pointer:
		set(path+" nil", reflect.Zero(v.Type()))
		alter(v.Elem(), path, do)
	case reflect.Slice:
		set(path+" nil", reflect.Zero(v.Type()))
		set(path+" empty", reflect.MakeSlice(v.Type(), 0, 0))
		set(path+" twice", reflect.AppendSlice(v.Slice3(0, 1, 1), v))
		alter(v.Index(0), path+"[0]", do)
	case reflect.Map:
		other := reflect.MakeMap(v.Type())
		other.SetMapIndex(v.MapKeys()[0], reflect.ValueOf("y"))
		set(path+" nil", reflect.Zero(v.Type()))
		set(path+" other", other)
	case reflect.Struct:
		switch v.Addr().Interface().(type) {
		case *metav1.Time:
			set(path+" later", reflect.ValueOf(metav1.NewTime(time.Unix(1e9, 1))))
			set(path+" elsewhere", reflect.ValueOf(metav1.NewTime(time.Unix(1e9, 0).In(time.FixedZone("x", 3600)))))
		case *metav1.MicroTime:
			set(path+" later", reflect.ValueOf(metav1.NewMicroTime(time.Unix(1e9, 1))))
		default:
			for i := range v.NumField() {
				alter(v.Field(i), path+"."+v.Type().Field(i).Name, do)
			}
		}
	}
}

// TestSameIsWhatEqualitySays of every field that there is, also of those that are added later.
func TestSameIsWhatEqualitySays(t *testing.T) {
	check := func(a, b any, same func() bool) {
		t.Helper()
		count, differ := 0, 0
		compare := func(path string) {
			count++
			want := equality.Semantic.DeepEqual(a, b)
			if !want {
				differ++
			}
			if got := same(); got != want {
				t.Errorf("%T%s: same %v, want %v", a, path, got, want)
			}
		}
		fill(reflect.ValueOf(a).Elem())
		fill(reflect.ValueOf(b).Elem())
		compare(" as it is")
		alter(reflect.ValueOf(a).Elem(), "", compare)
		empty := reflect.New(reflect.TypeOf(a).Elem()).Elem()
		reflect.ValueOf(b).Elem().Set(empty)
		compare(" and nothing")
		reflect.ValueOf(a).Elem().Set(empty)
		alterEmpty(reflect.ValueOf(a).Elem(), compare)
		if count < 40 || differ < count/2 {
			t.Errorf("%T: %d differ of %d: nothing was tried", a, differ, count)
		}
	}
	var records [2]v1alpha1.ExportRecordSpec
	check(&records[0], &records[1], func() bool { return sameRecord(&records[0], &records[1]) })
	var imports [2]v1alpha1.Import
	check(&imports[0], &imports[1], func() bool { return sameImport(&imports[0], &imports[1]) })
}

// alterEmpty gives an empty value empty lists and maps, one after the other, which is no change.
func alterEmpty(v reflect.Value, do func(path string)) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
			do("." + v.Type().Field(i).Name + " empty and nil")
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			do("." + v.Type().Field(i).Name + " empty and nil")
		case reflect.Struct:
			alterEmpty(f, do)
		default:
		}
	}
}
